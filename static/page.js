// Small helps for every page. Without this file every page still works.
import "./frame/times.js";
import { say } from "./texts.js";

const UNITS = [
  [86400, (number) => say("{number} d", { number })],
  [3600, (number) => say("{number} h", { number })],
  [60, (number) => say("{number} min", { number })],
  [1, (number) => say("{number} s", { number })],
];

// The same wording as console/templatetags/display.py, so that the text does not jump when the page counts on.
function length(seconds) {
  seconds = Math.max(Math.floor(seconds), 0);
  for (let i = 0; i < UNITS.length; i++) {
    const [size, words] = UNITS[i];
    if (seconds < size) continue;
    const rest = seconds % size;
    const smaller = UNITS[i + 1];
    const more = smaller && rest >= smaller[0] ? ` ${smaller[1](Math.floor(rest / smaller[0]))}` : "";
    return `${words(Math.floor(seconds / size))}${more}`;
  }
  return say("{number} s", { number: 0 });
}

function relative(seconds) {
  if (seconds < -5) return say("in {length}", { length: length(-seconds) });
  return seconds < 5 ? say("just now") : say("{length} ago", { length: length(seconds) });
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The browser's clock may be wrong, and Trainyard's time may differ from it: the page says which time it was served at.
function aheadOfBrowser() {
  const served = Date.parse(document.querySelector('meta[name="served-at"]')?.content ?? "");
  const [visit] = performance.getEntriesByType("navigation");
  // A page that comes from the browser's store was served at any time before.
  return Number.isNaN(served) || visit?.type === "back_forward" ? 0 : served - Date.now();
}

let ahead = aheadOfBrowser();

// Each beat of the server has its time (static/wire.js).
document.addEventListener("trainyard:beat", ({ detail }) => { ahead = detail * 1000 - Date.now(); });

function countOn() {
  // A clock that ticks says that something is known. Nothing is known while the page has no contact.
  if (document.documentElement.dataset.stale) return;
  const now = Date.now() + ahead;
  const since = (element, name) => (now - Date.parse(element.dataset[name])) / 1000;
  for (const element of document.querySelectorAll("[data-ago]")) write(element, relative(since(element, "ago")));
  for (const element of document.querySelectorAll("[data-since]")) write(element, length(since(element, "since")));
  for (const element of document.querySelectorAll("[data-until]")) write(element, length(-since(element, "until")));
}

async function copy(button) {
  const word = button.querySelector("span");
  try {
    // A text of many lines stands in the page only once.
    await navigator.clipboard.writeText(button.dataset.copy || button.parentElement.querySelector("code").textContent);
    word.textContent = say("Copied");
  } catch {
    // Without HTTPS there is no clipboard. Select the text, so that Ctrl+C copies it.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    word.textContent = say("Press Ctrl+C");
  }
  setTimeout(() => { word.textContent = say("Copy"); }, 2000);
}

function changeTheme(event) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  const now = ["light", "dark"].includes(root.dataset.theme) ? root.dataset.theme : dark ? "dark" : "light";
  const wanted = now === "dark" ? "light" : "dark";
  event.preventDefault();
  root.dataset.theme = wanted;
  document.cookie = `theme=${wanted}; path=/; max-age=31536000; samesite=lax`;
}

document.documentElement.classList.add("js");
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
document.getElementById("theme-form")?.addEventListener("submit", changeTheme);
countOn();
setInterval(countOn, 1000);
