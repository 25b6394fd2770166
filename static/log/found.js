// Search for the text of the search field in everything that is stored, piece by piece: in this log, or in the logs of
// all replicas. A list shows the lines found. A click on a line goes to it, in whichever log it is.

import { SWITCHED } from "../frame/times.js";
import { number, say, sayMany } from "../texts.js";

const AT_ONCE = 200; // lines that are listed before the person scrolls on
const EDGE = 60; // pixels from the end of the list at which the search goes on

const megabytes = (n) => `${number.format(Math.ceil(n / 1e6))} MB`;

// How to go on after an answer, for a search in one log and for a search in all.
const ONE = { rest: (a) => (a.searchedTo < a.stored ? { from: a.searchedTo } : null), done: (a) => a.searchedTo };
const ALL = { rest: (a) => (a.nextPageToken ? { pageToken: a.nextPageToken } : null), done: (a) => a.searched };

export class Found {
  constructor(view) {
    this.view = view;
    this.turn = 0;
    view.whole?.addEventListener("click", () => this.begin(false));
    view.everywhere?.addEventListener("click", () => this.begin(true));
    view.earlier?.addEventListener("change", () => this.all && this.begin(true));
    view.unfind.addEventListener("click", () => this.close());
    view.foundMore.addEventListener("click", () => this.#on());
    view.times.addEventListener("change", () => this.#listAgain());
    document.addEventListener(SWITCHED, () => this.#listAgain());
    view.foundLines.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  get open() {
    return !this.view.found.hidden;
  }

  close() {
    this.turn += 1;
    this.next = null;
    this.all = false;
    this.#shut();
    this.view.link.search();
  }

  #shut() {
    this.view.found.hidden = true;
    this.view.foundLines.replaceChildren();
  }

  // Another log is shown. Close the lines found in one log; keep those found in all logs.
  moved() {
    if (!this.all && this.open) this.close();
  }

  begin(all) {
    const { view } = this;
    const run = all ? "" : view.shownRun;
    if (!view.search.value) return view.search.focus();
    this.close();
    this.all = all;
    this.how = all ? ALL : ONE;
    this.url = all ? `${view.api}/log/search` : `${view.raw}/search`;
    this.asked = { q: view.search.value, ...(view.marks.pattern ? { regex: 1 } : {}) };
    if (all) Object.assign(this.asked, { order: "time", runs: view.earlier?.checked ? "all" : "newest", ...this.#replicas() });
    else if (run) this.asked.run = run;
    this.next = all ? {} : { from: 0 };
    this.count = 0;
    this.hits = [];
    view.found.hidden = false;
    view.foundDownload.href = this.#downloadUrl(all, run);
    view.link.search();
    if (view.earlierField) view.earlierField.hidden = !all;
    return this.#on();
  }

  // Of the logs of all replicas, the person may have chosen some.
  #replicas() {
    const { chosen } = this.view;
    return chosen ? { replicas: chosen } : {};
  }

  // Where all lines that match can be downloaded.
  #downloadUrl(all, run) {
    const { q, regex, runs } = this.asked;
    const which = all ? { runs, ...this.#replicas() } : run ? { run } : { replicas: this.view.replica };
    return `${this.view.api}/log?${new URLSearchParams({ as: "text", q, ...(regex ? { regex } : {}), ...which })}`;
  }

  // Go on where the last answer ended, until AT_ONCE more lines are found or everything is searched.
  async #on() {
    const turn = this.turn;
    const enough = this.count + AT_ONCE;
    this.view.foundMore.hidden = true;
    if (!this.count) this.#say(say("Searching…"));
    while (this.next && this.count < enough) {
      const answer = await this.#ask({ ...this.asked, ...this.next }, turn);
      if (turn !== this.turn || !answer) return;
      // The newest run stays the one that is searched.
      if (!this.all) this.asked.run = answer.run;
      const hits = answer.hits.map((hit) => ({ run: answer.run, ...hit }));
      this.#list(hits);
      this.view.marks.know(hits);
      this.count += answer.hits.length;
      this.next = this.how.rest(answer);
      const lines = this.#lines(this.count);
      const part = { lines, done: megabytes(this.how.done(answer)), of: megabytes(answer.stored) };
      const some = answer.order === "replica" ? say("{lines} in {done} of {of}, replica by replica", part) : say("{lines} in {done} of {of}", part);
      const told = this.next ? some : lines;
      this.#say(`${told}${this.next && this.count < enough ? "…" : ""}${this.#where()}`);
    }
    this.view.foundMore.hidden = !this.next;
  }

  // In how many logs, if the person has chosen some.
  #where() {
    const count = this.asked.replicas?.split(",").length;
    if (!count) return "";
    return ` ${sayMany(count, "(of {count} chosen replica)", "(of {count} chosen replicas)", { count: number.format(count) })}`;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.view.foundLines;
    if (!this.view.foundMore.hidden && scrollHeight - clientHeight - scrollTop < EDGE) this.#on();
  }

  #lines(count) {
    if (!count) return say("No lines");
    return sayMany(count, "{count} line", "{count} lines", { count: number.format(count) });
  }

  async #ask(what, turn) {
    try {
      const answer = await fetch(`${this.url}?${new URLSearchParams(what)}`);
      if (answer.ok) return await answer.json();
      const { error } = await answer.json();
      throw new Error(error.details?.find(({ locale }) => locale)?.message ?? error.message);
    } catch (problem) {
      if (turn === this.turn) this.#say(say("The log could not be searched: {problem}", { problem: problem.message }));
      return null;
    }
  }

  // Add the lines to the list. Those of all replicas come in the order of their times.
  #list(hits) {
    this.hits.push(...hits);
    this.view.foundLines.append(...hits.map((hit) => this.#line(hit)));
  }

  // The zone of the times has changed.
  #listAgain() {
    if (!this.all) return;
    const { foundLines } = this.view;
    const focused = foundLines.contains(document.activeElement) ? document.activeElement.hit : null;
    foundLines.replaceChildren(...this.hits.map((hit) => this.#line(hit)));
    const again = focused && [...foundLines.querySelectorAll("button")].find((button) => button.hit === focused);
    again?.focus();
  }

  #line(hit) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.hit = hit;
    if (hit.replica) {
      const where = document.createElement("span");
      where.className = "found-where";
      const of = { attempt: hit.attempt, start: hit.number + 1 };
      const run = hit.attempt > 1 || hit.number ? ` ${say("attempt {attempt}, start {start}", of)}` : "";
      const moment = Date.parse(hit.time ?? "");
      where.textContent = `${hit.replica}${run}${moment ? ` ${this.view.zone.clock(moment)}` : ""}`;
      const place = say("on {host}, byte {offset}", { host: hit.host, offset: number.format(hit.offset) });
      where.title = `${place}${moment ? `, ${this.view.zone.words(moment)}` : ""}`;
      button.append(where, " ");
    }
    button.append(...marked(hit));
    button.addEventListener("click", () => this.view.toHit(hit));
    item.append(button);
    return item;
  }

  #say(text) {
    this.view.foundState.textContent = text;
  }
}

// The text of a line, with what was found in it marked.
function marked({ text, match }) {
  const at = match ? text.indexOf(match) : -1;
  if (at < 0) return [text];
  const mark = document.createElement("mark");
  mark.textContent = match;
  return [text.slice(0, at), mark, text.slice(at + match.length)];
}
