// Of each log in the merged view: its rows (lines.js decides how a line ends up), and which of its lines are loaded.

import { PLAIN } from "./ansi.js";
import { Lines } from "./lines.js";

const encoder = new TextEncoder();

export class MergedLog {
  constructor(number, { id, replica }) {
    this.number = number;
    this.id = id;
    this.replica = replica;
    this.forget();
  }

  // Nothing of it is loaded.
  forget() {
    this.first = Infinity; // where the first of its lines that are loaded ends
    this.end = undefined; // where the last line that came ends
    this.lines = null;
    this.top = null; // the lines.js whose first rows stand at the top
  }

  // Returns the lines that this part begins or changes. It may be a whole line, one that goes on, or a note.
  take({ text, end, at, kind }) {
    this.end = Math.max(end, this.end ?? 0);
    this.first = Math.min(this.first, end);
    this.#open(beginOf({ text, end, kind }));
    return this.#write(this.lines, { text, end, at, kind });
  }

  // Its next line comes from there on.
  begin(offset) {
    this.end ??= offset;
    this.#open(offset);
  }

  #open(offset) {
    this.lines ??= new Lines(this.id, offset, false, 0, true);
    this.top ??= this.lines;
  }

  skip({ end }) {
    this.end = Math.max(end, this.end ?? 0);
    this.lines?.skipTo(end);
  }

  get living() {
    return this.lines?.living ?? [];
  }

  // This line is not loaded any more: it is one of the earlier ones.
  left(line) {
    line.gone = true;
    this.first = Math.max(this.first, line.end + 1);
    this.top = null;
  }

  // The lines from this one on are not loaded any more.
  cutFrom(line) {
    this.end = Math.min(this.end, line.offset);
    this.lines = null;
  }

  has(end) {
    return end >= (this.first < Infinity ? this.first : (this.end ?? Infinity) + 1);
  }

  // Earlier parts, the oldest first. Returns their lines, but for those that the lines below them have written over.
  earlier(parts) {
    const lines = new Lines(this.id, beginOf(parts[0]), false, 0, true);
    const found = new Set();
    for (const part of parts) for (const line of this.#write(lines, part)) found.add(line);
    this.#join(lines).forEach((line) => found.delete(line));
    this.first = parts[0].end;
    this.top = lines;
    let at = 0;
    const ordered = [...found].sort((a, b) => a.offset - b.offset).filter((line) => !isBlank(line));
    for (const line of ordered) at = line.at = Math.max(at, line.at);
    return ordered;
  }

  // The rows of `lines` that were replaced: the cursor went up to them from the rows below.
  #join(lines) {
    const { above = 0, firsts = [] } = this.top ?? {};
    const cursor = lines.row ? lines.screen.indexOf(lines.row) : lines.screen.length;
    const replaced = lines.screen.filter((_, at) => firsts[at - cursor + above]?.written);
    // Also of a row that stands still further up.
    for (const line of replaced) line.written = true;
    return replaced;
  }

  #write(lines, { text, end, at, kind }) {
    const { number, id } = this;
    if (kind === "note") {
      const offset = lines.offset;
      lines.skipTo(end);
      return [{ number, run: id, offset, end, at, text, kind: "gap", pieces: [{ text, style: PLAIN }] }];
    }
    const written = lines.write(text, end, !kind);
    // Nothing follows.
    if (kind === "last") lines.skipTo(end);
    for (const line of written) Object.assign(line, { number, at, end });
    return written;
  }
}

// A row that a bar has left empty.
export function isBlank(line) {
  return !line.kind && (line.written || line.above) && !line.text.trim();
}

function beginOf({ text, end, kind }) {
  return kind === "note" ? end : Math.max(0, end - encoder.encode(text).length - (kind ? 0 : 1));
}
