// What the merged log shows stands in the address of the page: the search, the time that the person went to, and the lines
// that are picked: the first and the last one, each by its log, its place and its time. A click into the gutter of a line
// picks it, with the Shift key down all lines up to it.

import { number, say } from "../texts.js";

// A line as the address has it.
function lineOf([run, byte, at]) {
  return run && Number(byte) >= 0 && Number(at) > 0 ? { run, byte: Number(byte), at: Number(at) } : null;
}

function has(row, { run, byte }) {
  return row.lines.some((line) => line.run === run && line.offset <= byte && byte < line.end);
}

export class MergedLink {
  constructor(view) {
    this.view = view;
    this.picked = null; // the first line: {run, byte, at}
    this.last = null; // the last line, if several are picked
    this.anchor = null; // the line that was clicked without the Shift key
    this.time = "";
    view.body.addEventListener("click", (event) => this.#clicked(event));
    view.copy.addEventListener("click", () => this.#copy());
    view.time.addEventListener("change", () => this.toTime());
  }

  // What the address asks for when the page is opened.
  open() {
    const asked = new URLSearchParams(location.search);
    const { view } = this;
    const text = (asked.get("q") ?? "").slice(0, 200);
    if (text) {
      view.search.value = text;
      view.marks.pattern = asked.get("regex") === "1";
      view.marks.look();
      if (asked.get("in") === "all") view.finder.begin(true);
    }
    const picked = lineOf([asked.get("run"), asked.get("byte"), asked.get("at")]);
    if (picked) {
      this.picked = this.anchor = picked;
      this.last = lineOf((asked.get("to") ?? "").split(","));
      view.showPicked();
    } else if (view.zone.write(asked.get("time"))) this.toTime();
  }

  // Go to the time in the field.
  toTime() {
    const at = this.view.zone.read() / 1000;
    if (!(at > 0)) return;
    this.picked = this.last = null;
    this.time = this.view.zone.written;
    this.search();
    this.view.showAt(at);
  }

  // Pick this line, which a search has found, and go to it.
  async toHit({ run, offset, time }) {
    const at = Date.parse(time) / 1000;
    this.#set({ run, byte: offset, at });
    await this.view.showPicked();
  }

  // The end is followed again, or the start is shown.
  moved() {
    this.picked = this.last = null;
    this.time = "";
    this.view.rows.forEach((row) => this.show(row));
    this.search();
  }

  // Whether this row has the first line that is picked.
  holds(row) {
    return Boolean(this.picked) && has(row, this.picked);
  }

  show(row) {
    row.node.classList.toggle("picked", this.#isPicked(row));
  }

  #isPicked(row) {
    if (!this.last || !this.picked) return this.holds(row);
    return this.#order(row, this.picked) >= 0 && this.#order(row, this.last) <= 0;
  }

  // Whether the row stands before this line (less than 0), has it (0), or stands behind it: as the rows are ordered.
  #order(row, line) {
    if (has(row, line)) return 0;
    const number = this.view.numbers.get(line.run);
    if (row.number === number) return row.offset - line.byte;
    return row.at - line.at || row.number - number;
  }

  #clicked(event) {
    const gutter = event.target.closest(".gutter");
    const row = gutter && this.view.rows.find((one) => one.gutter === gutter);
    if (row && !row.kind) this.#pick(row, event.shiftKey);
  }

  #pick(row, andUpTo = false) {
    const [{ run, end, at }] = row.lines;
    const line = { run, byte: end - 1, at };
    const { anchor } = this;
    if (!andUpTo || !anchor || has(row, anchor)) this.#set(line);
    else if (this.#order(row, anchor) > 0) this.#set(anchor, line, anchor);
    else this.#set(line, anchor, anchor);
    this.#tellNumber(row, line);
  }

  #set(first, last = null, anchor = first) {
    Object.assign(this, { picked: first, last, anchor, time: "" });
    this.view.rows.forEach((one) => this.show(one));
    this.search();
  }

  // The number of the line in the log of its replica, which only the server knows.
  async #tellNumber(row, { run, byte }) {
    const { replica } = this.view.logs[row.number];
    const query = new URLSearchParams({ run, from: byte, to: byte + 1 });
    try {
      const answer = await fetch(`${this.view.api}/replicas/${replica}/log/lines?${query}`);
      const { line } = answer.ok ? await answer.json() : {};
      if (line) row.gutter.title = say("Line {line} of {name}", { line: number.format(line), name: replica });
    } catch {
      // The socket reports a lost connection.
    }
  }

  // The line that is picked, else the first one that is seen.
  async #copy() {
    const { top } = this.view.body.getBoundingClientRect();
    const row = this.picked ? null : this.view.rows.find((one) => !one.kind && one.node.getBoundingClientRect().bottom > top + 1);
    if (row) this.#pick(row);
    let said = say("Copied");
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      // Without HTTPS there is no clipboard.
      said = say("See the address");
    }
    this.view.copy.textContent = said;
    setTimeout(() => { this.view.copy.textContent = say("Copy link"); }, 2000);
  }

  // Write the address anew.
  search() {
    const { view, picked } = this;
    const url = new URL(location.href);
    const set = (name, value) => (value ? url.searchParams.set(name, value) : url.searchParams.delete(name));
    set("run", picked?.run);
    set("byte", picked && String(picked.byte));
    set("at", picked?.at.toFixed(3));
    set("to", this.last && `${this.last.run},${this.last.byte},${this.last.at.toFixed(3)}`);
    set("time", this.time);
    set("q", view.search.value);
    set("regex", view.search.value && view.marks.pattern ? "1" : "");
    set("in", view.search.value && view.finder.open ? "all" : "");
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
}
