// The gutter of the log: the number of each line, and when it was printed, in one of four formats.
//
// A row knows how many line feeds lie between it and the begin of the window; the server says the number of one line of
// each run. The times come as marks: pairs of an offset and a second since 1970, by the host's clock.

import { SWITCHED, clockInZone } from "../frame/times.js";
import { choose, chosen } from "./choices.js";

const AGAIN_MS = 300;
const MAX_MARKS = 20_000;
const pad = (n, size = 2) => String(n).padStart(size, "0");

export const FORMATS = {
  // In the zone of the page.
  local: (at) => `${clockInZone(at * 1000)}.${pad(Math.floor((at % 1) * 1000), 3)}`,
  utc: (at) => new Date(at * 1000).toISOString().replace("T", " "),
  start: (at, begin) => since(at - begin),
  unix: (at) => at.toFixed(3),
};
export const WIDTHS = { local: 13, utc: 25, start: 13, unix: 15 };

// The format that was chosen. On a narrow screen the text needs the room.
export function keptFormat() {
  const kept = chosen("times", innerWidth < 640 ? "off" : "local");
  return kept in FORMATS ? kept : "off";
}

function since(seconds) {
  const whole = Math.floor(Math.abs(seconds));
  const time = `${pad(Math.floor(whole / 3600))}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
  return `${seconds < 0 ? "-" : "+"}${time}.${pad(Math.floor((Math.abs(seconds) % 1) * 1000), 3)}`;
}

export class Gutter {
  constructor(view) {
    this.view = view;
    this.digits = 4;
    this.forget();
    view.times.value = keptFormat();
    view.times.addEventListener("change", () => {
      choose("times", view.times.value);
      view.timesWanted();
      this.#look();
      this.all();
    });
    document.addEventListener(SWITCHED, () => this.all());
    this.#look();
  }

  get format() {
    return FORMATS[this.view.times.value];
  }

  // Another window begins: nothing is known about it.
  forget() {
    this.lines = new Map(); // of each run: the number of the line that has no line feed of the window before it
    this.marks = new Map(); // of each run: [[offset, second], ...], in order
    this.begins = new Map(); // of each run: when its first byte was printed
  }

  // The line that holds the byte at `offset` has this many line feeds of the window before it.
  async place(run, offset, feeds, url) {
    if (offset === 0) return this.#number(run, 1 - feeds);
    const lines = this.lines;
    for (;;) {
      const answer = await ask(`${url}/lines?${new URLSearchParams({ run, from: offset, to: offset + 1 })}`);
      if (this.lines !== lines || !answer) return undefined;
      this.add(run, answer.times ?? []);
      if (answer.line) return this.#number(run, answer.line - feeds);
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }

  #number(run, line) {
    this.lines.set(run, line);
    this.all();
  }

  // Fetch when the bytes [from, to) were printed, and when the run began.
  async fetchTimes(run, from, to, url) {
    if (!this.format) return;
    const { marks, begins } = this;
    const about = (first, end) => ask(`${url}/lines?${new URLSearchParams({ run, from: first, to: end })}`);
    const [answer, begin] = await Promise.all([about(from, to), begins.has(run) ? null : about(0, 1)]);
    if (this.marks !== marks) return;
    if (begin?.times?.length) begins.set(run, begin.times[0][1]);
    if (answer?.times) this.add(run, answer.times);
    this.all();
  }

  add(run, times) {
    if (!times.length) return;
    const known = this.marks.get(run) ?? [];
    const last = known.at(-1)?.[0] ?? -1;
    const sorted = times[0][0] > last ? known.concat(times) : [...new Map([...known, ...times])].sort((a, b) => a[0] - b[0]);
    // The window moves on: the marks of what left it at the top go first.
    this.marks.set(run, sorted.length > MAX_MARKS ? sorted.slice(-MAX_MARKS / 2) : sorted);
    if (sorted[0][0] === 0) this.begins.set(run, sorted[0][1]);
  }

  // When the row was printed: the last mark up to its first byte.
  time(row) {
    const marks = this.marks.get(row.run) ?? [];
    let [low, high] = [0, marks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (marks[middle][0] <= row.offset) low = middle + 1;
      else high = middle;
    }
    return low ? marks[low - 1][1] : null;
  }

  number(row) {
    const first = this.lines.get(row.run);
    return first === undefined || row.kind ? null : first + row.feed;
  }

  show(row) {
    if (row.kind) return;
    const number = row.continued ? null : this.number(row);
    const text = number === null ? "" : String(number);
    if (row.gutter.dataset.line !== text) row.gutter.dataset.line = text;
    if (text.length > this.digits) this.#look(text.length);
    if (!this.format) return;
    const at = this.time(row);
    row.gutter.dataset.time = at === null ? "" : this.format(at, this.begins.get(row.run) ?? at);
  }

  all() {
    for (const row of this.view.rows) {
      this.show(row);
      this.view.link.show(row);
    }
  }

  #look(digits = this.digits) {
    this.digits = digits;
    const { root, times } = this.view;
    root.dataset.times = times.value;
    root.style.setProperty("--gutter", `${digits + 2 + (WIDTHS[times.value] ?? 0)}ch`);
  }
}

async function ask(url) {
  try {
    const answer = await fetch(url);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // The socket reports a lost connection.
  }
}
