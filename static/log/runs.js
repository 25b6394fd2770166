// Choose the run of the replica whose log is shown: the newest run, from restart to restart, or a certain one.

import { say } from "../texts.js";

export class Runs {
  constructor(view) {
    this.view = view;
    view.runs.addEventListener("change", () => view.show(view.replica, view.runs.value));
  }

  // Fetch the list of runs again. It is hidden if there is only one run.
  async look() {
    const { view } = this;
    let job;
    try {
      const answer = await fetch(view.api);
      if (!answer.ok) return;
      job = await answer.json();
    } catch {
      return; // The socket reports a lost connection.
    }
    const runs = job.replicas.find(({ name }) => name === view.replica)?.runs ?? [];
    const options = [new Option(say("Newest run, followed"), "")];
    for (const { id, attempt, number, host } of runs.toReversed()) {
      const text = say("Attempt {attempt}, start {start}, on {host}", { attempt, start: number + 1, host });
      options.push(new Option(text, id));
    }
    view.runs.replaceChildren(...options);
    view.runs.value = view.namedRun;
    view.runsField.hidden = runs.length < 2;
  }
}
