// The rows of the merged log, in the order of their times. Equal lines that many replicas print at about the same time are
// one row. A line is a row of lines.js, with the number of its log, when it was printed, and where it ends; `shown` is the
// row here that it is in.

const FOLD_S = 10; // equal lines within so many seconds are one row

export class MergedRows {
  constructor(body) {
    this.body = body;
    this.folding = true;
    this.forget();
  }

  forget() {
    this.all = [];
    this.newest = new Map(); // of a text: the newest row that has it
    this.body.replaceChildren();
  }

  // Returns the row of the line: a new one, or the one that it is folded into.
  add(line) {
    const { text } = line;
    const known = this.folding && !line.kind ? this.#equal(line, text) : null;
    if (known) {
      known.lines.push(line);
      line.shown = known;
      return known;
    }
    const row = rowOf(line, text);
    line.shown = row;
    this.#place(row);
    if (this.folding && !row.kind) this.newest.set(text, row);
    return row;
  }

  // The line was written over, on its row. Returns the row.
  change(line) {
    const row = line.shown;
    if (row.lines.length > 1) {
      this.take(line);
      return this.add(line);
    }
    this.#unname(row);
    row.text = line.text;
    row.pieces = copied(line);
    return row;
  }

  // Take the line out. Returns its row, if that is gone now.
  take(line) {
    const row = line.shown;
    line.shown = null;
    row.lines = row.lines.filter((one) => one !== line);
    const [first] = row.lines;
    if (first) {
      Object.assign(row, { run: first.run, number: first.number, offset: first.offset, badge: null });
      return null;
    }
    const at = this.all.indexOf(row);
    if (at >= 0) this.all.splice(at, 1);
    this.#remove(row);
    return row;
  }

  // Drop what is too much at the top, or at the end. Returns these rows.
  trimTop(most) {
    return this.#drop(this.all.splice(0, Math.max(0, this.all.length - most)));
  }

  trimEnd(most) {
    return this.#drop(this.all.splice(most));
  }

  #drop(rows) {
    for (const row of rows) this.#remove(row);
    return rows;
  }

  #remove(row) {
    row.node.remove();
    this.#unname(row);
  }

  #unname(row) {
    if (this.newest.get(row.text) === row) this.newest.delete(row.text);
  }

  // The row with the same text that another replica printed at about the same time.
  #equal({ number, at }, text) {
    const row = this.newest.get(text);
    return row && Math.abs(row.at - at) <= FOLD_S && !row.lines.some((line) => line.number === number) ? row : null;
  }

  // By time, and the lines of one log in their order. Nearly always that is at the end; of earlier lines, at the top.
  #place(row) {
    const rows = this.all;
    let at = rows.length;
    if (at && after(rows[0], row)) at = 0;
    while (at > 0 && after(rows[at - 1], row)) at -= 1;
    if (at === rows.length) this.body.append(row.node);
    else rows[at].node.before(row.node);
    rows.splice(at, 0, row);
  }
}

// A row that stands for this line.
export function rowOf(line, text = line.text) {
  const { run, number, at, offset, kind = "", continued, cut } = line;
  const node = document.createElement("div");
  return { lines: [line], run, number, at, offset, kind, continued, cut, text, pieces: copied(line), hits: [], node };
}

// What lines.js writes later changes its own pieces.
function copied(line) {
  return line.pieces.map(({ text, style }) => ({ text, style }));
}

// Whether row `a` belongs behind row `b`. The lines of one log stay in their order, whatever their times say.
function after(a, b) {
  if (a.number === b.number) return a.offset > b.offset;
  return a.at > b.at || (a.at === b.at && a.number > b.number);
}
