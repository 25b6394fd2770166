// What is stored of a log, by HTTP: ranges of bytes, and which line is where.

import { say } from "../texts.js";

const COUNTING_MS = 300;

export class Stored {
  constructor(view) {
    this.view = view;
  }

  // Returns {from, to, gaps, data}, or null where it failed.
  async fetch(run, range) {
    this.fetching = true;
    try {
      const answer = await fetch(`${this.view.raw}?${new URLSearchParams({ run, ...range })}`);
      if (!answer.ok) throw new Error(say("The server answered {status}.", { status: answer.status }));
      const header = (name) => answer.headers.get(`Trainyard-Log-${name}`);
      const data = new Uint8Array(await answer.arrayBuffer());
      const gaps = JSON.parse(header("Gaps") ?? "[]");
      return { from: Number(header("From")), to: Number(header("To")), gaps, data };
    } catch (problem) {
      this.view.footer.say(say("More of the log could not be fetched: {problem}", { problem: problem.message }), "bad");
      return null;
    } finally {
      this.fetching = false;
    }
  }

  // Ask about lines. Old logs are counted first, which may take a while.
  async lines(what) {
    for (;;) {
      try {
        const answer = await fetch(`${this.view.raw}/lines?${new URLSearchParams(what)}`);
        if (!answer.ok) throw new Error(say("the server answered {status}", { status: answer.status }));
        const found = await answer.json();
        if (!found.counting) return found.run ? found : null;
      } catch (problem) {
        this.view.footer.say(say("The line could not be found: {problem}", { problem: problem.message }), "bad");
        return null;
      }
      this.view.footer.say(say("Counting lines…"));
      await new Promise((done) => setTimeout(done, COUNTING_MS));
    }
  }
}
