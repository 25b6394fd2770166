// Turn the bytes of a log into rows. Every row knows the byte offset at which it begins, so that a viewer can drop rows
// and fetch them again.

import { Ansi, CARRIAGE_RETURN } from "./ansi.js";

// A longer line is shown in several rows. Browsers lay out rows of this length at once.
const MAX_ROW_BYTES = 8192;
const NEWLINE = 10;
const RETURN = 13;

export class Row {
  constructor(run, offset, continued) {
    this.run = run;
    this.offset = offset;
    this.continued = continued; // begins in the middle of a line
    this.cut = false; // ends in the middle of a line
    this.pieces = [];
    this.length = 0;
    this.node = null;
  }

  get text() {
    return this.pieces.map((piece) => piece.text).join("");
  }
}

export class Lines {
  // `continued`: the first byte is not the beginning of a line.
  constructor(run, offset, continued = false) {
    this.run = run;
    this.offset = offset;
    this.continued = continued;
    this.ansi = new Ansi();
    this.decoder = decoder();
    this.row = null;
    this.returned = false;
  }

  // Returns the rows that `bytes` begin or change, in order. The last row may continue with the next call.
  push(bytes) {
    const rows = this.row ? [this.row] : [];
    let at = 0;
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at);
      const end = Math.min(newline < 0 ? bytes.length : newline, at + MAX_ROW_BYTES);
      this.#cutBefore(bytes, at, end);
      this.#write(rows, this.decoder.decode(bytes.subarray(at, end), { stream: true }), this.offset + at);
      at = end;
      if (end === newline) this.#end(rows, this.offset + ++at);
    }
    this.offset += bytes.length;
    return rows;
  }

  // End a row that would become too long. The rest of the line is a row of its own, with its own offset. Text that a
  // carriage return is going to replace does not count.
  #cutBefore(bytes, at, end) {
    if (!this.row || this.returned) return;
    const replaced = bytes.subarray(at, end).indexOf(RETURN);
    if (this.row.length + (replaced < 0 ? end - at : replaced) <= MAX_ROW_BYTES) return;
    this.row.cut = true;
    this.row = null;
    this.continued = true;
  }

  // No more bytes follow: write the bytes that the decoder still holds.
  finish() {
    const rows = this.row ? [this.row] : [];
    const rest = this.decoder.decode();
    if (rest) this.#write(rows, rest, this.offset);
    return rows;
  }

  // The bytes before `offset` are missing. The next byte begins a row.
  skipTo(offset) {
    this.offset = offset;
    this.decoder = decoder();
    this.ansi.unfinished = "";
    this.returned = false;
    this.row = null;
  }

  #open(rows, offset) {
    this.row = new Row(this.run, offset, this.continued);
    this.continued = false;
    rows.push(this.row);
  }

  #write(rows, text, offset) {
    // A row begins with its first byte, even if that byte shows nothing yet.
    if (!this.row) this.#open(rows, offset);
    for (const piece of this.ansi.read(text)) {
      if (piece === CARRIAGE_RETURN) this.returned = true;
      else this.#append(piece);
    }
  }

  #append({ text, style }) {
    if (this.returned) {
      // A carriage return, as of a progress bar: the line begins again and stays one line.
      this.row.pieces = [];
      this.row.length = 0;
      this.returned = false;
    }
    const last = this.row.pieces.at(-1);
    if (last && last.style === style) last.text += text;
    else this.row.pieces.push({ text, style });
    this.row.length += text.length;
  }

  #end(rows, next) {
    this.#write(rows, this.decoder.decode(), next - 1);
    this.decoder = decoder();
    // Forget an escape that the line did not finish: it must not swallow the next line.
    this.ansi.unfinished = "";
    this.returned = false;
    this.row = null;
    this.continued = false;
  }
}

// Bytes that are not UTF-8 are shown as replacement characters. The download has them unchanged.
function decoder() {
  return new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });
}
