// What the merged log shows stands in the address of the page: the search, the time that the person went to, and the line
// that is picked, by its log, its place and its time. A click into the gutter of a line picks it.

import { say } from "../texts.js";

export class MergedLink {
  constructor(view) {
    this.view = view;
    this.picked = null; // {run, byte, at}
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
    const [run, byte, at] = [asked.get("run") ?? "", Number(asked.get("byte")), Number(asked.get("at"))];
    if (run && byte >= 0 && at > 0) {
      this.picked = { run, byte, at };
      view.showPicked();
    } else if (view.zone.write(asked.get("time"))) this.toTime();
  }

  // Go to the time in the field.
  toTime() {
    const at = this.view.zone.read() / 1000;
    if (!(at > 0)) return;
    this.picked = null;
    this.time = this.view.zone.written;
    this.search();
    this.view.showAt(at);
  }

  // Pick this line, which a search has found, and go to it.
  async toHit({ run, offset, time }) {
    const at = Date.parse(time) / 1000;
    this.picked = { run, byte: offset, at };
    this.time = "";
    this.search();
    await this.view.showPicked();
  }

  // The end is followed again, or the start is shown.
  moved() {
    this.picked = null;
    this.time = "";
    this.view.rows.forEach((row) => this.show(row));
    this.search();
  }

  // Whether this row has the line that is picked.
  holds(row) {
    const { run, byte } = this.picked ?? {};
    return Boolean(run) && row.lines.some((line) => line.run === run && line.offset <= byte && byte < line.end);
  }

  show(row) {
    row.node.classList.toggle("picked", this.holds(row));
  }

  #clicked(event) {
    const gutter = event.target.closest(".gutter");
    const row = gutter && this.view.rows.find((one) => one.gutter === gutter);
    if (row && !row.kind) this.#pick(row);
  }

  #pick(row) {
    const [line] = row.lines;
    this.picked = { run: line.run, byte: line.end - 1, at: line.at };
    this.time = "";
    this.view.rows.forEach((one) => this.show(one));
    this.search();
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
    set("time", this.time);
    set("q", view.search.value);
    set("regex", view.search.value && view.marks.pattern ? "1" : "");
    set("in", view.search.value && view.finder.open ? "all" : "");
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
}
