// Messages that can be read again. Those of a page stand in the page; those that come with a fragment (the header
// HX-Trigger) are shown in a corner. Both are kept for this tab, and stand behind the bell.

import { say } from "../texts.js";
import { paintTimes } from "./times.js";

const KEPT = 20;
const KEY = "messages";
// Long enough to be read: a moment to notice it, and then the text. An error stays until it is closed.
const NOTICE_MS = 6000;
const LETTER_MS = 80;
const TONES = { error: "bad", success: "good", warning: "warn" };

const said = document.getElementById("said");
const list = document.getElementById("said-list");
const bell = document.getElementById("bell");
const corner = document.getElementById("toasts");

function read() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    // Another person may have used this tab before.
    return kept.who === said.dataset.who ? kept : { who: said.dataset.who, all: [], seen: 0 };
  } catch {
    return { who: said.dataset.who, all: [], seen: 0 };
  }
}

let kept = read();

function write() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // Without storage messages are kept until the page is left.
  }
}

function note(tag, { level, text }) {
  const element = document.createElement(tag);
  element.className = `note tone-${TONES[level] ?? "live"}`;
  const words = document.createElement("div");
  words.textContent = text;
  element.append(words);
  return element;
}

// The list is made when it is opened: a text that stands in the page does not stand there twice.
function fill() {
  list.replaceChildren(
    ...kept.all.toReversed().map((message) => {
      const item = note("li", message);
      const at = document.createElement("time");
      at.dataset.when = new Date(message.at).toISOString();
      at.className = "muted small";
      item.firstChild.append(at);
      return item;
    }),
  );
  paintTimes(list);
}

function show() {
  const fresh = kept.all.length - kept.seen;
  bell.hidden = kept.all.length === 0;
  bell.setAttribute("aria-label", fresh ? say("Messages, {number} new", { number: fresh }) : say("Messages"));
  document.getElementById("bell-count").textContent = fresh || "";
}

function keep(messages, isSeen) {
  if (!messages.length) return;
  const before = kept.all.length;
  kept.all = [...kept.all, ...messages.map((message) => ({ ...message, at: Date.now() }))];
  if (isSeen && kept.seen === before) kept.seen = kept.all.length;
  const lost = Math.max(kept.all.length - KEPT, 0);
  kept.all = kept.all.slice(lost);
  kept.seen = Math.max(kept.seen - lost, 0);
  write();
  show();
}

function pop(message) {
  const toast = note("div", message);
  const close = document.createElement("button");
  close.className = "plain";
  close.textContent = "×";
  close.setAttribute("aria-label", say("Close"));
  close.addEventListener("click", () => toast.remove());
  toast.append(close);
  corner.append(toast);
  if (message.level === "error") return;
  let left = NOTICE_MS + LETTER_MS * message.text.length;
  // The time does not run while somebody points at it, has the focus in it, or looks at another tab.
  const timer = setInterval(() => {
    if (document.hidden || toast.matches(":hover, :focus-within")) return;
    left -= 250;
    if (left > 0 && toast.isConnected) return;
    clearInterval(timer);
    toast.remove();
  }, 250);
}

// A script of a page may say something too.
export function tell(text, level = "info") {
  pop({ level, text });
  keep([{ level, text }], false);
}

document.addEventListener("toasts", ({ detail }) => {
  detail.all.forEach(pop);
  keep(detail.all, false);
});
said.addEventListener("beforetoggle", ({ newState }) => {
  if (newState === "open") {
    fill();
    return;
  }
  list.replaceChildren();
  kept.seen = kept.all.length;
  write();
  show();
});

show();
keep(
  [...document.querySelectorAll("[data-message]")].map((element) => ({
    level: element.dataset.message,
    text: element.textContent.trim().replace(/\s+/g, " "),
  })),
  true,
);
