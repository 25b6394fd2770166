// The lines that are still being written, below the log: those without an end, and the progress bars that are drawn again
// and again. Each log has its rows here, and keeps its place, so that the other lines are not pushed away by bars.

import { rowOf } from "./merged_rows.js";

const MOST = 8; // rows of one log

export class Living {
  constructor(view, box) {
    this.view = view;
    this.box = box;
    this.logs = new Map(); // of the number of a log: {node, lines}
  }

  forget() {
    this.logs.clear();
    this.box.replaceChildren();
    this.box.hidden = true;
  }

  // These lines of the log are being written now. Returns those that are not any more.
  show(number, lines) {
    const seen = lines.slice(0, MOST).filter((line) => line.text.trim());
    const log = this.logs.get(number);
    if (!log && !seen.length) return [];
    const { node, lines: before } = log ?? this.#begin(number);
    for (const line of seen) this.#paint(line);
    if (seen.length !== before.length || seen.some((line, at) => line !== before[at])) {
      node.replaceChildren(...seen.map((line) => line.living.node));
    }
    this.logs.get(number).lines = seen;
    this.box.hidden = ![...this.logs.values()].some((one) => one.lines.length);
    return before.filter((line) => !seen.includes(line));
  }

  has(line) {
    return Boolean(this.logs.get(line.number)?.lines.includes(line));
  }

  repaint() {
    for (const { lines } of this.logs.values()) for (const line of lines) this.#paint(line);
  }

  #paint(line) {
    const { text, pieces, at, end } = line;
    line.living ??= rowOf(line);
    Object.assign(line.living, { text, pieces, at, end });
    this.view.paint(line.living);
  }

  // The logs stand in their order, so that each keeps its place.
  #begin(number) {
    const log = { node: document.createElement("div"), lines: [] };
    log.node.dataset.log = number;
    this.logs.set(number, log);
    const next = [...this.box.children].find((node) => Number(node.dataset.log) > number);
    this.box.insertBefore(log.node, next ?? null);
    return log;
  }
}
