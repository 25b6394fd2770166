// Shows at the top of the page how its sockets are: the worst of them counts. While one of them has no contact, the page
// is marked as stale: it is grey, says since when, and its clocks stand still. A page that does not change by itself has
// a socket for notes alone: it never says that it is live.

import { clockInZone } from "./frame/times.js";
import { say } from "./texts.js";

const WORDS = { live: say("Live"), lost: say("Reconnecting…"), off: say("Not live") };
const WORST_FIRST = ["stale", "off", "lost", "live"];

const sockets = new Map(); // each socket → { state, reason, since }

export function report(socket, state, reason = "", since = 0) {
  const known = sockets.get(socket);
  if (known?.state === state && known.reason === reason) return;
  sockets.set(socket, { state, reason, since });
  show();
}

export function forget(socket) {
  sockets.delete(socket);
  show();
}

// Say something at the top of the page until the state of a socket changes.
export function dot(state, reason = "") {
  const worst = worstOf();
  if (state === "live" || worst?.state === "stale") show();
  else write(state, reason || WORDS[state]);
}

function worstOf() {
  const all = [...sockets.values()];
  return WORST_FIRST.map((state) => all.filter((one) => one.state === state)).find((some) => some.length)?.[0];
}

function show() {
  const worst = worstOf();
  if (!worst) return;
  const { state, reason } = worst;
  const stale = [...sockets.values()].filter((one) => one.state === "stale").map(({ since }) => since);
  const at = stale.length ? new Date(Math.min(...stale)) : null;
  const text = at ? say("No contact since {time}", { time: clockInZone(at) }) : reason || WORDS[state];
  write(state, text);
  mark(at);
}

function write(state, text) {
  const element = document.getElementById("link-dot");
  if (!element) return;
  element.dataset.state = state;
  const still = state === "live" && element.dataset.still;
  const shown = still ? say("Connected") : text;
  if (element.textContent !== shown) element.textContent = shown;
  if (!still) return element.removeAttribute("title");
  const time = clockInZone(Date.parse(element.dataset.still));
  element.title = say("This page shows what was there at {time}. Reload it for the newest.", { time });
}

function mark(at) {
  if (at) document.documentElement.dataset.stale = at.toISOString();
  else delete document.documentElement.dataset.stale;
}
