// Paint a row: its number and time, and its text with colours, addresses and the hits of a search. What a program prints
// never becomes markup: all of it is painted as text nodes.

import { PLAIN, paint as piece } from "./ansi.js";
import { addresses } from "./addresses.js";

export function paintRow(row, hits = []) {
  const text = row.text;
  const links = row.kind ? [] : addresses(row, text);
  if (!row.gutter) {
    row.gutter = document.createElement("span");
    row.gutter.className = "gutter";
    row.gutter.setAttribute("aria-hidden", "true");
  }
  row.node.className = ["row", row.kind, row.continued && "continued", row.cut && "cut"].filter(Boolean).join(" ");
  row.node.classList.toggle("hit", hits.length > 0);
  if (!links.length && !hits.length) row.node.replaceChildren(row.gutter, ...row.pieces.map(piece));
  else row.node.replaceChildren(row.gutter, ...parts(row, text, links, hits));
}

// Returns the nodes of the text between, before and behind the addresses, and a link for each address. The text of a link
// has no colours: a program could hide a part of the address with them.
function parts(row, text, links, hits) {
  const nodes = [];
  let from = 0;
  for (const { start, end, href } of [...links, { start: text.length, end: text.length }]) {
    for (const { text: part, style, at } of cut(row.pieces, from, start)) nodes.push(...marked(part, style, at, hits));
    if (href) nodes.push(link(href, marked(text.slice(start, end), PLAIN, start, hits)));
    from = end;
  }
  return nodes;
}

function link(href, nodes) {
  const anchor = document.createElement("a");
  anchor.href = href;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer";
  anchor.append(...nodes);
  return anchor;
}

// Returns the parts of the pieces that lie in [start, end), each with its place in the text.
function cut(pieces, start, end) {
  const found = [];
  let at = 0;
  for (const { text, style } of pieces) {
    const [from, to] = [Math.max(start - at, 0), Math.min(end - at, text.length)];
    if (from < to) found.push({ text: text.slice(from, to), style, at: at + from });
    at += text.length;
  }
  return found;
}

// Returns the nodes of a text that stands at `at` in its row: what a hit covers is in a <mark>.
function marked(text, style, at, hits) {
  const nodes = [];
  let from = 0;
  const add = (to) => to > from && nodes.push(piece({ text: text.slice(from, to), style }));
  for (const [start, end] of hits) {
    const [first, last] = [Math.max(start - at, from), Math.min(end - at, text.length)];
    if (first >= last) continue;
    add(first);
    const mark = document.createElement("mark");
    mark.append(piece({ text: text.slice(first, last), style }));
    nodes.push(mark);
    from = last;
  }
  add(text.length);
  return nodes;
}
