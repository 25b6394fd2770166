// Rows that are no text of the log: a gap, a restart. And the words and counts that they need.

import { PLAIN } from "./ansi.js";
import { Row } from "./lines.js";

const number = new Intl.NumberFormat("en");

export const bytes = (n) => `${number.format(n)} byte${n === 1 ? "" : "s"}`;

export function note(run, offset, text, kind) {
  const row = new Row(run, offset, false);
  row.kind = kind;
  row.pieces = [{ text, style: PLAIN }];
  return row;
}

export function gap(run, from, to, reason) {
  const where = `(${number.format(from)} to ${number.format(to)})`;
  return note(run, from, `${bytes(to - from)} missing here ${where}: ${reason}`, "gap");
}

// How many line feeds are in these bytes.
export function feedsIn(data) {
  let feeds = 0;
  for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) feeds += 1;
  return feeds;
}
