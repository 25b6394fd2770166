// What the log shows stands in the address of the page: the replica, the run, the search, the time, and the lines that
// are picked. A click on a line number picks the line, with the Shift key down all lines up to it. Each such address leads back.

import { say } from "../texts.js";

const LINES = /^(\d{1,15})(?:-(\d{1,15}))?$/;
const MAX_RANGE = 4000;

export class Link {
  constructor(view) {
    this.view = view;
    this.picked = null; // {run, first, last}
    this.time = ""; // the time that the person went to, as the address has it
    view.body.addEventListener("click", (event) => this.#clicked(event));
    view.copy.addEventListener("click", () => this.#copy());
  }

  // What the address asks for when the page is opened.
  open() {
    const asked = new URLSearchParams(location.search);
    const { view } = this;
    const text = (asked.get("q") ?? "").slice(0, Number(view.search.maxLength) || 200);
    if (text) {
      view.search.value = text;
      view.marks.pattern = asked.get("regex") === "1";
      view.marks.look();
      if (asked.get("in") === "log" || asked.get("in") === "all") view.finder.begin(asked.get("in") === "all");
    }
    const byte = asked.get("byte") ?? "";
    if (/^\d{1,15}$/.test(byte)) this.#toByte(view.namedRun, Number(byte));
    const lines = LINES.exec(asked.get("lines") ?? "");
    if (lines) this.goto(view.namedRun, Number(lines[1]), Number(lines[2] ?? lines[1]));
    else if (view.zone.write(asked.get("time"))) this.toTime(view.namedRun);
  }

  // Go to these lines of the run; of the newest run if there is no `run`.
  async goto(run, first, last = first) {
    const { view } = this;
    const low = Math.max(1, Math.min(first, last));
    const high = Math.min(Math.max(first, last), low + MAX_RANGE);
    const found = await view.placeOf(low, run);
    if (!found) return;
    await view.goto({ from: found.offset }, found.run);
    this.#pick(found.run, found.line, Math.max(high, found.line));
    if (view.rows.length) view.center(view.rows[0]);
  }

  // Go to the time in the field.
  async toTime(run) {
    const { view } = this;
    const at = view.zone.read() / 1000;
    if (!(at > 0)) return;
    const found = run ? { run } : await view.placeOf(1);
    if (!found) return;
    await view.goto({ at }, found.run);
    this.picked = null;
    this.time = view.zone.written;
    this.#write();
  }

  // The end is followed again.
  followed() {
    if (!this.time) return;
    this.time = "";
    this.#write();
  }

  // Go to the line that holds this byte: a hit of a search in all replicas leads here.
  async #toByte(run, byte) {
    const line = run && (await this.view.lineAt(run, byte));
    if (line) this.goto(run, line);
  }

  #clicked(event) {
    const gutter = event.target.closest(".gutter");
    const row = gutter && this.view.rows.find((one) => one.gutter === gutter);
    const line = row && this.view.gutter.number(row);
    if (!line) return;
    const from = event.shiftKey && this.picked?.run === row.run ? this.picked.from : line;
    this.#pick(row.run, Math.min(from, line), Math.max(from, line), from);
  }

  #pick(run, first, last, from = first) {
    this.picked = { run, first, last, from };
    this.time = "";
    this.view.rows.forEach((row) => this.show(row));
    this.#write();
  }

  unpick() {
    if (!this.picked) return false;
    this.picked = null;
    this.view.rows.forEach((row) => this.show(row));
    this.#write();
    return true;
  }

  show(row) {
    const line = this.view.gutter.number(row);
    const { run, first, last } = this.picked ?? {};
    row.node.classList.toggle("picked", row.run === run && line !== null && line >= first && line <= last);
  }

  search() {
    this.#write();
  }

  moved() {
    this.picked = null;
    this.time = "";
    this.#write();
  }

  // The lines that are picked, else the first line that is seen.
  async #copy() {
    if (!this.picked) {
      const { top } = this.view.body.getBoundingClientRect();
      const row = this.view.rows.find((one) => !one.kind && one.node.getBoundingClientRect().bottom > top + 1);
      const line = row && this.view.gutter.number(row);
      if (line) this.#pick(row.run, line, line);
    }
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

  #write() {
    const { view, picked } = this;
    const url = new URL(location.href);
    const set = (name, value) => (value ? url.searchParams.set(name, value) : url.searchParams.delete(name));
    if (/\/log\/[a-z0-9-]+\/?$/.test(url.pathname)) url.pathname = url.pathname.replace(/[a-z0-9-]+(\/?)$/, `${view.replica}$1`);
    else if (url.searchParams.has("log") || view.replica !== view.root.dataset.replica) set("log", view.replica);
    url.searchParams.delete("byte");
    set("run", picked?.run ?? view.namedRun);
    set("lines", picked && (picked.first === picked.last ? picked.first : `${picked.first}-${picked.last}`));
    set("time", this.time);
    set("q", view.search.value);
    set("regex", view.search.value && view.marks.pattern ? "1" : "");
    set("in", view.search.value && view.finder.open ? (view.finder.all ? "all" : "log") : "");
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
}
