// The rows that are loaded: a window over a log of any size. `top` and `bottom` are the places in the log at which it
// begins and ends; rows are added at both sides, and leave at the other one.

import { Lines } from "./lines.js";
import { feedsIn, gap, lastLines } from "./notes.js";
import { paintRow } from "./paint.js";

const MAX_ROWS = 4000;
// At the live end, thousands of lines may come in a second. Who wants to read them scrolls up.
const FOLLOWED_ROWS = 500;
// Of more new rows at once only so many are painted: the others would pass unseen.
const PAINTED_ROWS = 150;
const NEWLINE = 10;
const ESCAPE = 27;

export class Window {
  constructor(view) {
    this.view = view;
    this.rows = [];
    this.pushed = new Set();
  }

  // Begin anew at this place.
  clear({ run, offset }) {
    const { view } = this;
    this.rows = [];
    this.pushed.clear();
    view.body.replaceChildren();
    this.top = { run, offset, feeds: 0 };
    this.bottom = { run, offset };
    this.lines = new Lines(run, offset, offset > 0);
    view.marks.forget();
    view.gutter.forget();
    if (run) view.gutter.place(run, offset, 0, view.raw);
  }

  // Bytes of the live end. They are shown by `showPushed`: what would leave the window at once is never painted.
  push(data) {
    // This may begin other `lines`, so it comes first.
    const whole = this.#wholeLines(data);
    for (const row of this.lines.push(whole)) this.pushed.add(row);
  }

  showPushed() {
    const rows = [...this.pushed];
    this.pushed.clear();
    const skipped = this.view.following ? Math.max(rows.length - PAINTED_ROWS, 0) : 0;
    if (skipped) this.#drop(this.rows.splice(0));
    this.below(rows.slice(skipped));
    if (skipped) this.#moveTop();
  }

  #moveTop() {
    const { run, offset, feed } = this.rows[0];
    this.top = { run, offset, feeds: feed };
  }

  // Begin the window with a whole line if there is one. The part before it is fetched when the person scrolls up.
  #wholeLines(data) {
    const begun = this.rows.length || this.lines.offset > this.top.offset;
    const at = begun ? 0 : this.#beginOf(data);
    if (!at) return data;
    const { run, offset, feeds } = this.lines;
    this.top = { run, offset: offset + at, feeds: feeds + feedsIn(data.subarray(0, at)) };
    this.lines = new Lines(run, this.top.offset, false, this.top.feeds);
    return data.subarray(at);
  }

  // At the live end, only the last lines are read: the others would not be painted. Colours, and a cursor that goes up,
  // reach over lines, so with them all are read.
  #beginOf(data) {
    const last = this.view.following && !data.includes(ESCAPE) ? lastLines(data, PAINTED_ROWS) : 0;
    const first = this.lines.continued ? data.indexOf(NEWLINE) + 1 : 0;
    return last || (first < data.length ? first : 0);
  }

  // A row that is no text of the log. What follows is of `next`, or goes on in the same run.
  add(row, next = null) {
    this.showPushed();
    this.below(this.lines.finish());
    this.below([row]);
    if (next) this.lines = next;
  }

  below(rows) {
    const fresh = document.createDocumentFragment();
    for (const row of rows) {
      if (row.node) this.paint(row);
      else {
        row.node = document.createElement("div");
        this.paint(row);
        fresh.append(row.node);
        this.rows.push(row);
      }
    }
    this.view.body.append(fresh);
    if (rows.length) this.view.marks.changed(rows);
  }

  get #most() {
    return this.view.following ? FOLLOWED_ROWS : MAX_ROWS;
  }

  #above(rows) {
    const { body, marks } = this.view;
    const fresh = document.createDocumentFragment();
    for (const row of rows) {
      row.node = document.createElement("div");
      this.paint(row);
      fresh.append(row.node);
    }
    const before = body.scrollHeight;
    body.prepend(fresh);
    this.rows.unshift(...rows);
    body.scrollTop += body.scrollHeight - before;
    if (rows.length) marks.changed(rows);
  }

  paint(row, hits = []) {
    paintRow(row, hits);
    this.view.gutter.show(row);
    this.view.link.show(row);
  }

  // A stored piece that follows the window, or that the window begins with.
  addBelow(piece) {
    this.below(parsed(piece, this.lines));
    this.moveBottom();
  }

  // A stored piece that ends where the window begins. If it begins within a line, that part is left out.
  addAbove(piece) {
    const { run, feeds } = this.top;
    const newline = piece.from > 0 && piece.gaps.length === 0 ? piece.data.indexOf(NEWLINE) : -1;
    if (newline >= 0 && newline + 1 < piece.data.length) {
      piece.data = piece.data.subarray(newline + 1);
      piece.from += newline + 1;
    }
    const lines = new Lines(run, piece.from, piece.from > 0 && newline < 0, feeds - feedsIn(piece.data));
    this.top = { run, offset: piece.from, feeds: lines.feeds };
    const rows = parsed(piece, lines);
    rows.push(...lines.finish().filter((row) => !rows.includes(row)));
    this.#above(rows);
  }

  moveBottom() {
    this.bottom = { run: this.lines.run, offset: this.lines.offset };
  }

  trimTop() {
    const gone = this.rows.splice(0, Math.max(this.rows.length - this.#most, 0));
    if (!gone.length) return;
    this.#moveTop();
    this.#drop(gone);
  }

  // Returns whether rows have left: the window is not at the live end then.
  trimBottom() {
    const gone = this.rows.splice(MAX_ROWS);
    if (!gone.length) return false;
    const [first] = gone;
    this.bottom = { run: first.run, offset: first.offset };
    this.lines = new Lines(first.run, first.offset, first.continued, first.feed);
    this.#drop(gone);
    return true;
  }

  #drop(rows) {
    for (const row of rows) row.node.remove();
    this.view.marks.dropped(rows);
  }
}

// Put the bytes and gaps through `lines`, in their order. Returns the rows.
function parsed(piece, lines) {
  const rows = new Set();
  const add = (some) => some.forEach((row) => rows.add(row));
  let at = piece.from;
  let taken = 0;
  for (const hole of [...piece.gaps, { from: piece.to, to: piece.to }]) {
    const size = Math.max(0, Math.min(hole.from, piece.to) - at);
    add(lines.push(piece.data.subarray(taken, taken + size)));
    taken += size;
    at = Math.max(at, hole.to);
    if (!hole.reason) break;
    add(lines.finish());
    add([gap(lines.run, hole.from, hole.to, hole.reason)]);
    lines.skipTo(hole.to);
  }
  return [...rows];
}
