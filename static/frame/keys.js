// Keys of every page. They do nothing while somebody types. A person can switch off those without Ctrl or ⌘
// (Preferences), because a voice that dictates types letters too.

import { openInDialog } from "./dialogs.js";
import { openPalette } from "./palette.js";
import { switchToUtc } from "./times.js";

const TYPING = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, [contenteditable]";
// How long the second key of a pair is waited for.
const PAIR_MS = 1500;
const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
const palette = document.getElementById("palette");
let firstOfPair = 0;

const rows = () =>
  [...document.querySelectorAll("main tbody tr, main .hits li")].filter(
    (row) => linkOf(row) && row.checkVisibility(),
  );
const linkOf = (row) => row.querySelector("th a, a.name") ?? row.querySelector("a");
const current = () => document.activeElement?.closest("main tbody tr, main .hits li");

function move(by) {
  const all = rows();
  const at = all.indexOf(current());
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by];
  if (!next) return;
  linkOf(next).focus();
  next.scrollIntoView({ block: "nearest" });
}

function search() {
  const own = document.querySelector("main input[type=search]");
  if (!own?.checkVisibility()) {
    openPalette();
    return;
  }
  own.focus();
  own.select();
}

const SINGLE = {
  "/": search,
  "?": () => openInDialog(palette.dataset.keysPage),
  j: () => move(1),
  k: () => move(-1),
  u: switchToUtc,
  x: () => current()?.querySelector("input[type=checkbox]")?.click(),
  g: () => { firstOfPair = performance.now(); },
};

// Whether the letter completed a pair that leads somewhere.
function goes(key) {
  const isPair = firstOfPair && performance.now() - firstOfPair < PAIR_MS;
  firstOfPair = 0;
  const place = isPair && /^[a-z]$/.test(key) ? palette.dataset[`go${key.toUpperCase()}`] : "";
  if (place) location.assign(place);
  return Boolean(place);
}

function onKey(event) {
  if (event.isComposing || event.defaultPrevented || event.altKey) return;
  if (event.key.toLowerCase() === "k" && (isApple ? event.metaKey : event.ctrlKey)) {
    // In a shell the key belongs to the shell.
    if (event.target.closest(".xterm")) return;
    event.preventDefault();
    openPalette();
    return;
  }
  const off = document.documentElement.dataset.keys === "off";
  if (off || event.ctrlKey || event.metaKey || event.target.closest(TYPING)) return;
  if (document.querySelector("dialog[open], :popover-open")) return;
  const does = goes(event.key) ? () => {} : SINGLE[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}

document.addEventListener("keydown", onKey);
