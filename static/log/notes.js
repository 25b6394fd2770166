// Rows that are no text of the log: a gap, a restart. And the words and counts that they need.

import { number, say, sayMany } from "../texts.js";
import { PLAIN } from "./ansi.js";
import { Row } from "./lines.js";

export const bytes = (n) => sayMany(n, "{count} byte", "{count} bytes", { count: number.format(n) });

export function note(run, offset, text, kind) {
  const row = new Row(run, offset, false);
  row.kind = kind;
  row.pieces = [{ text, style: PLAIN }];
  return row;
}

export function gap(run, from, to, reason) {
  const values = { size: bytes(to - from), from: number.format(from), to: number.format(to), reason };
  return note(run, from, say("{size} missing here ({from} to {to}): {reason}", values), "gap");
}

// How many line feeds are in these bytes.
export function feedsIn(data) {
  let feeds = 0;
  for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) feeds += 1;
  return feeds;
}

// Where the last `count` lines of these bytes begin; 0 if there are no more.
export function lastLines(data, count) {
  let at = data.length;
  for (let feeds = 0; feeds <= count && at >= 0; feeds += 1) at = at ? data.lastIndexOf(10, at - 1) : -1;
  return at + 1;
}
