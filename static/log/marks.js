// Search in the loaded rows: mark each word that is found, count the words, and go from one to the next.
//
// A regular expression is never run here: the address of a page may have one, and it could stop the browser. The server
// runs it, and says what it found; that text is marked in the rows that it was found in.

import { say } from "../texts.js";

// So long is painted at once. The person can type and scroll between two turns.
const TURN_MS = 8;
const SEEN = 100; // rows that a screen has at most

export class Marks {
  constructor(view) {
    this.view = view;
    this.waiting = []; // rows that still show the hits of before; the last one is painted first
    this.text = "";
    this.found = new Map(); // of each "run offset" of a line: the texts that the server found in it
    this.hits = []; // rows with hits, in order
    this.now = null; // [row, number of the hit in it]
    view.search.addEventListener("input", () => this.look());
    view.regex.addEventListener("click", () => {
      this.pattern = !this.pattern;
      this.look();
    });
    view.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      // Without a log of its own, a viewer searches all of its logs.
      if (this.pattern && !this.found.size) view.finder.begin(!view.whole);
      else this.step(event.shiftKey ? -1 : 1);
    });
    view.previous.addEventListener("click", () => this.step(-1));
    view.next.addEventListener("click", () => this.step(1));
  }

  get pattern() {
    return this.view.regex.getAttribute("aria-pressed") === "true";
  }

  set pattern(on) {
    this.view.regex.setAttribute("aria-pressed", String(on));
  }

  look() {
    const { search } = this.view;
    this.text = this.pattern ? "" : lower(search.value);
    this.found.clear();
    this.view.link.search();
    this.#again();
  }

  // The server found these lines: {run, line, match}.
  know(hits) {
    if (!this.pattern) return;
    for (const { run, line, match } of hits) {
      const key = `${run} ${line}`;
      this.found.set(key, [...(this.found.get(key) ?? []), match]);
    }
    this.#again();
  }

  // Another text is searched for. Thousands of rows may have hits of both: those that are seen are painted first.
  #again() {
    const { rows } = this.view;
    const before = new Set(this.hits);
    this.hits = [];
    this.now = null;
    this.#find(rows);
    const waiting = rows.filter((row) => row.hits.length || before.has(row));
    const seen = this.view.following ? -1 : waiting.indexOf(this.#firstSeen(waiting));
    const first = seen < 0 ? [] : waiting.splice(seen, SEEN);
    this.waiting = [...waiting, ...first.reverse()];
    this.#paintSome();
    this.#showCount();
  }

  #firstSeen(rows) {
    const { top } = this.view.body.getBoundingClientRect();
    return rows.find((row) => row.node.getBoundingClientRect().bottom > top);
  }

  #paintSome() {
    clearTimeout(this.turn);
    const until = performance.now() + TURN_MS;
    while (this.waiting.length && performance.now() < until) {
      const row = this.waiting.pop();
      this.view.paint(row, row.hits);
      if (this.now?.[0] === row) this.#mark();
    }
    if (this.waiting.length) this.turn = setTimeout(() => this.#paintSome());
  }

  // Called with rows that are new or whose text changed.
  changed(rows) {
    if (!this.text && !this.found.size) return this.#showCount();
    const [last] = this.hits.slice(-1);
    const fresh = this.#find(rows);
    for (const row of rows) {
      if (row.hits.length) this.view.paint(row, row.hits);
      if (this.now?.[0] === row) this.#show(this.now, false);
    }
    // Nearly always they are new at the end, and in order.
    const ordered = fresh.every((row, at) => !(at || last) || this.#order(at ? fresh[at - 1] : last, row) < 0);
    if (!ordered) this.hits.sort((a, b) => this.#order(a, b));
    return this.#showCount();
  }

  // Look for hits in these rows. Returns the rows that had none before.
  #find(rows) {
    const known = new Set(this.hits);
    const fresh = [];
    const lost = [];
    for (const row of rows) {
      row.hits = row.kind ? [] : this.#hitsIn(row);
      if (row.hits.length && !known.has(row)) fresh.push(row);
      else if (!row.hits.length && known.has(row)) lost.push(row);
    }
    this.hits.push(...fresh);
    this.dropped(lost);
    return fresh;
  }

  #hitsIn(row) {
    if (this.text) return places(lower(row.text), this.text);
    const texts = this.found.get(`${row.run} ${row.offset}`) ?? [];
    return texts.flatMap((text) => places(row.text, text).slice(0, 1)).sort((a, b) => a[0] - b[0]);
  }

  dropped(rows) {
    if (!this.hits.length) return;
    const gone = new Set(rows);
    this.hits = this.hits.filter((row) => !gone.has(row));
    if (this.now && gone.has(this.now[0])) this.now = null;
    this.#showCount();
  }

  forget() {
    this.hits = [];
    this.waiting = [];
    this.now = null;
    this.#showCount();
  }

  step(by) {
    const all = this.#words();
    if (!all.length) return;
    if (this.view.following) this.view.pause();
    const at = this.now ? this.#place(all) + by : by > 0 ? 0 : -1;
    this.#show(all.at(at % all.length));
  }

  #words() {
    return this.hits.flatMap((row) => row.hits.map((_, number) => [row, number]));
  }

  #place(words) {
    return words.findIndex(([row, number]) => row === this.now[0] && number === this.now[1]);
  }

  #show([row, number], move = true) {
    this.#unmark();
    this.now = [row, number];
    if (this.waiting.includes(row)) this.view.paint(row, row.hits);
    this.#mark();
    if (move) this.view.center(row);
    this.#showCount();
  }

  #mark() {
    const [row, number] = this.now;
    row.node.classList.add("now");
    row.node.querySelectorAll("mark")[number]?.classList.add("this");
  }

  #unmark() {
    if (!this.now) return;
    this.now[0].node.classList.remove("now");
    for (const mark of this.now[0].node.querySelectorAll("mark.this")) mark.classList.remove("this");
  }

  // Go to the line that holds the byte at `offset`.
  at(offset) {
    const found = this.view.rows.findLast((row) => row.offset <= offset);
    if (found) this.show(found);
  }

  // Go to this row, and mark its first hit.
  show(row) {
    this.#show([row, 0]);
  }

  #order(a, b) {
    return a.node.compareDocumentPosition(b.node) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
  }

  #showCount() {
    const words = this.hits.reduce((sum, row) => sum + row.hits.length, 0);
    const at = this.now && words ? this.#place(this.#words()) + 1 : 0;
    const searched = this.text || this.found.size;
    const here = { at, words };
    const text = at ? say("{at} of {words} in the loaded lines", here) : say("{words} in the loaded lines", here);
    this.view.count.textContent = searched ? text : "";
    this.view.previous.disabled = this.view.next.disabled = !words;
  }
}

// Small letters, each in its place: a few capital letters of Unicode have small ones of another length.
function lower(text) {
  const small = text.toLowerCase();
  if (small.length === text.length) return small;
  return Array.from(text, (letter) => (letter.toLowerCase().length === letter.length ? letter.toLowerCase() : letter)).join("");
}

// Where `part` stands in the text: [[start, end], ...].
function places(text, part) {
  const found = [];
  for (let at = part ? text.indexOf(part) : -1; at >= 0; at = text.indexOf(part, at + part.length)) {
    found.push([at, at + part.length]);
  }
  return found;
}
