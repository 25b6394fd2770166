// Turn the bytes of a log into rows. Every row knows the byte offset at which it begins, so that a viewer can drop rows
// and fetch them again.
//
// The cursor may go up to rows that are there already, as nested progress bars do: they are written anew on their rows.

import { Ansi, CARRIAGE_RETURN, ERASE_BELOW, ERASE_LINE, ERASE_REST } from "./ansi.js";

// A longer line is shown in several rows. Browsers lay out rows of this length at once.
const MAX_ROW_BYTES = 8192;
// So many rows above the last one can the cursor go.
const SCREEN = 100;
const NEWLINE = 10;
const RETURN = 13;

export class Row {
  // `feed`: the number of line feeds before it, counted from where its Lines began.
  constructor(run, offset, continued, feed = 0) {
    this.run = run;
    this.offset = offset;
    this.feed = feed;
    this.continued = continued; // begins in the middle of a line
    this.cut = false; // ends in the middle of a line
    this.pieces = [];
    this.length = 0;
    this.written = false; // anew: what stood there is replaced
    this.above = false; // stands above the first byte, where the cursor went up
    this.node = null;
  }

  get text() {
    return this.pieces.map((piece) => piece.text).join("");
  }
}

export class Lines {
  // `continued`: the first byte is not the beginning of a line. `feeds`: the number of line feeds before it.
  // `above`: rows are made for those above the first one that the cursor goes up to. They are at the front of `firsts`.
  constructor(run, offset, continued = false, feeds = 0, above = false) {
    this.run = run;
    this.start = offset;
    this.offset = offset;
    this.feeds = feeds;
    this.continued = continued;
    this.ansi = new Ansi();
    this.decoder = decoder();
    this.screen = []; // the last rows, as far as the cursor can go up
    this.row = null; // the row of the cursor, or null: below the last row
    this.begin = null; // the first byte behind the last row
    this.returned = false;
    this.firsts = above ? [] : null; // the first rows, as far as a cursor can go up to them
    this.above = 0; // how many of them stand above the first byte
  }

  // The row of the cursor, and those below it: what is written there next replaces them.
  get living() {
    return this.row ? this.screen.slice(this.screen.indexOf(this.row)) : [];
  }

  // A part of a line as text, which ends at the offset `end`, with its line feed if it is `whole`. Returns what `push` does.
  write(text, end, whole) {
    const rows = new Set(this.row ? [this.row] : []);
    for (let at = 0; at < text.length; at += MAX_ROW_BYTES) {
      const part = text.slice(at, at + MAX_ROW_BYTES);
      this.#cutBefore(part.length, part.indexOf("\r"));
      this.#write(rows, part, this.offset);
    }
    if (whole) this.#end(rows, end);
    this.offset = end;
    return [...rows];
  }

  // Returns the rows that `bytes` begin or change, in order. The last row may continue with the next call.
  push(bytes) {
    const rows = new Set(this.row ? [this.row] : []);
    let at = 0;
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at);
      const end = Math.min(newline < 0 ? bytes.length : newline, at + MAX_ROW_BYTES);
      this.#cutBefore(end - at, bytes.subarray(at, end).indexOf(RETURN));
      this.#write(rows, this.decoder.decode(bytes.subarray(at, end), { stream: true }), this.offset + at);
      at = end;
      if (end === newline) this.#end(rows, this.offset + ++at);
    }
    this.offset += bytes.length;
    return [...rows];
  }

  // End a row that would become too long. The rest of the line is a row of its own, with its own offset. Text that a
  // carriage return is going to replace does not count: it is at `returns`, or -1.
  #cutBefore(size, returns) {
    if (!this.row || this.returned) return;
    if (this.row.length + (returns < 0 ? size : returns) <= MAX_ROW_BYTES) return;
    this.row.cut = true;
    this.row = null;
    this.screen = [];
    this.continued = true;
  }

  // No more bytes follow: write the bytes that the decoder still holds.
  finish() {
    const rows = new Set(this.row ? [this.row] : []);
    const rest = this.decoder.decode();
    if (rest) this.#write(rows, rest, this.offset);
    return [...rows];
  }

  // The bytes before `offset` are missing. The next byte begins a row.
  skipTo(offset) {
    this.offset = offset;
    this.decoder = decoder();
    this.ansi.unfinished = "";
    this.returned = false;
    this.screen = [];
    this.row = null;
    this.begin = null;
  }

  #open(rows) {
    this.row = new Row(this.run, this.begin, this.continued, this.feeds);
    this.begin = null;
    this.continued = false;
    this.screen.push(this.row);
    if (this.screen.length > SCREEN) this.screen.shift();
    if (this.firsts?.length < SCREEN) this.firsts.push(this.row);
    rows.add(this.row);
  }

  // Make the rows above the first one, up to which the cursor goes.
  #reach(up) {
    const now = this.row ? this.screen.indexOf(this.row) : this.screen.length;
    const reaches = this.firsts && this.screen[0] === this.firsts[0];
    for (let more = up - now; reaches && more > 0 && this.screen.length < SCREEN; more -= 1) {
      this.above += 1;
      const row = new Row(this.run, this.start - this.above, false);
      row.above = true;
      this.screen.unshift(row);
      this.firsts.unshift(row);
    }
  }

  #write(rows, text, offset) {
    // A row begins with its first byte, even if that byte shows nothing yet.
    if (!this.row) this.begin ??= offset;
    for (const piece of this.ansi.read(text)) {
      if (piece.down) this.#move(rows, piece.down);
      else {
        if (!this.row) this.#open(rows);
        this.#act(rows, piece);
      }
    }
  }

  #act(rows, piece) {
    if (piece === CARRIAGE_RETURN) this.returned = true;
    else if (piece === ERASE_LINE || (piece === ERASE_REST && this.returned)) erase(this.row);
    else if (piece === ERASE_BELOW) this.#below().forEach((row) => rows.add(erase(row)));
    else if (piece.text) this.#append(piece);
  }

  // Move the cursor by so many rows, up if `by` is negative, as far as there are rows.
  #move(rows, by) {
    if (by < 0) this.#reach(-by);
    const last = this.screen.length - 1;
    const now = this.row ? this.screen.indexOf(this.row) : last + 1;
    const there = by < 0 ? Math.max(0, now + by) : Math.min(last, now + by);
    if (last < 0 || (by > 0 && there <= now)) return;
    // Below the last row, the cursor stands at the beginning of a line.
    if (!this.row) this.returned = true;
    this.begin = null;
    this.row = this.screen[there];
    rows.add(this.row);
  }

  #below() {
    return this.row ? this.screen.slice(this.screen.indexOf(this.row) + (this.returned ? 0 : 1)) : [];
  }

  #append({ text, style }) {
    // A carriage return, as of a progress bar: the line begins again and stays one line.
    if (this.returned) erase(this.row);
    this.returned = false;
    const last = this.row.pieces.at(-1);
    if (last && last.style === style) last.text += text;
    else this.row.pieces.push({ text, style });
    this.row.length += text.length;
  }

  // A line feed leads to the row below, if the cursor was moved up before, or below the last row.
  #end(rows, next) {
    const rest = this.decoder.decode();
    this.#write(rows, rest, next - 1);
    if (!this.row) this.#open(rows);
    this.decoder = decoder();
    // Forget an escape that the line did not finish: it must not swallow the next line.
    this.ansi.unfinished = "";
    this.feeds += 1;
    this.row = this.screen[this.screen.indexOf(this.row) + 1] ?? null;
    if (this.row) rows.add(this.row);
    this.returned = Boolean(this.row);
    this.continued = false;
  }
}

function erase(row) {
  row.written = true;
  row.pieces = [];
  row.length = 0;
  return row;
}

// Bytes that are not UTF-8 are shown as replacement characters. The download has them unchanged.
function decoder() {
  return new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });
}
