// Brushes on the axes of the trials' parameters. A brush fills in the form of the ranges and sends it: the server filters,
// and the address has the state. Without this file the form alone does the same.

import { say } from "../texts.js";
import { placeOf, stepOf, textAt } from "./scales.js";
import { makeWalker, point } from "./pointed_line.js";

const FORM = "ranges-form";
const LOW = 0, HIGH = 1;
const ENDS = ["from", "to"];
// A frame of 90 units has its highest value 4 below the top, and its lowest 4 above the bottom.
const EDGE = 4 / 90;
const CLICK_PX = 4;
const PAUSE_MS = 600;

const form = () => document.getElementById(FORM);
const heightOf = (place) => EDGE + (1 - 2 * EDGE) * (1 - place);

function placeAt(box, clientY) {
  const { top, height } = box.getBoundingClientRect();
  return Math.min(Math.max(1 - ((clientY - top) / height - EDGE) / (1 - 2 * EDGE), 0), 1);
}

let waiting = 0;
let dragging = false;

function send(pause = 0) {
  clearTimeout(waiting);
  waiting = setTimeout(() => form()?.requestSubmit(), pause);
}

class Brush {
  constructor(head) {
    this.key = head.dataset.axis;
    this.name = head.querySelector("strong").textContent;
    this.own = JSON.parse(head.dataset.values);
    this.places = ENDS.map((end, at) => {
      const typed = this.#field(end)?.value.trim();
      const place = typed ? placeOf(this.own, typed) : NaN;
      return Number.isNaN(place) ? at : place;
    });
    this.box = document.createElement("div");
    this.box.className = "brush";
    this.band = document.createElement("div");
    this.band.className = "band";
    this.handles = ENDS.map((end, at) => this.#handle(end, at));
    this.box.append(this.band, ...this.handles);
    this.box.addEventListener("pointerdown", (event) => this.#down(event));
    this.#paint();
  }

  #field(end) {
    return form()?.elements.namedItem(`${end}.${this.key}`);
  }

  #handle(end, at) {
    const handle = document.createElement("span");
    handle.className = "handle";
    handle.tabIndex = 0;
    handle.dataset.handle = `${end}.${this.key}`;
    const words = { name: this.name };
    const known = {
      role: "slider", "aria-orientation": "vertical", "aria-valuemin": "0", "aria-valuemax": "100",
      "aria-label": at === LOW ? say("{name}, from", words) : say("{name}, to", words),
    };
    for (const [name, value] of Object.entries(known)) handle.setAttribute(name, value);
    handle.addEventListener("keydown", (event) => this.#key(event, at));
    return handle;
  }

  get isRange() {
    return this.places[LOW] > 0 || this.places[HIGH] < 1;
  }

  #paint() {
    const [low, high] = this.places;
    this.box.classList.toggle("on", this.isRange);
    this.band.style.top = `${100 * heightOf(high)}%`;
    this.band.style.height = `${100 * (heightOf(low) - heightOf(high))}%`;
    this.handles.forEach((handle, at) => {
      handle.style.top = `${100 * heightOf(this.places[at])}%`;
      handle.setAttribute("aria-valuenow", String(Math.round(100 * this.places[at])));
      handle.setAttribute("aria-valuetext", textAt(this.own, this.places[at]));
    });
  }

  // An end that stands at the end of its axis has no bound.
  #write(pause) {
    ENDS.forEach((end, at) => {
      const field = this.#field(end);
      if (field) field.value = this.places[at] === at ? "" : textAt(this.own, this.places[at]);
    });
    this.#paint();
    send(pause);
  }

  #move(at, place) {
    const [low, high] = this.places;
    this.places[at] = at === LOW ? Math.min(Math.max(place, 0), high) : Math.max(Math.min(place, 1), low);
  }

  #key(event, at) {
    const step = stepOf(this.own);
    const moves = { ArrowUp: step, ArrowRight: step, ArrowDown: -step, ArrowLeft: -step, PageUp: 10 * step, PageDown: -10 * step };
    if (event.key in moves) this.#move(at, this.places[at] + moves[event.key]);
    else if (event.key === "Home") this.#move(at, 0);
    else if (event.key === "End") this.#move(at, 1);
    else if (["Delete", "Backspace", "Escape"].includes(event.key) && this.isRange) this.places = [0, 1];
    else return;
    event.preventDefault();
    this.#write(PAUSE_MS);
  }

  // A finger scrolls the page, unless it begins on an end.
  #down(event) {
    const at = this.handles.indexOf(event.target);
    if (event.button !== 0 || (event.pointerType === "touch" && at < 0)) return;
    event.preventDefault();
    const start = { y: event.clientY, place: placeAt(this.box, event.clientY), places: [...this.places] };
    const moved = (now) => {
      const place = placeAt(this.box, now.clientY);
      if (at >= 0) this.#move(at, place);
      else this.places = [Math.min(start.place, place), Math.max(start.place, place)];
      this.#paint();
    };
    const up = (now) => {
      dragging = false;
      this.box.removeEventListener("pointermove", moved);
      if (now.type === "pointercancel") this.places = start.places;
      else if (at < 0 && Math.abs(now.clientY - start.y) < CLICK_PX) this.places = [0, 1];
      this.#write(0);
      (at >= 0 ? this.handles[at] : this.handles[HIGH]).focus({ preventScroll: true });
    };
    dragging = true;
    this.box.setPointerCapture(event.pointerId);
    this.box.addEventListener("pointermove", moved);
    for (const end of ["pointerup", "pointercancel"]) this.box.addEventListener(end, up, { once: true });
  }
}

// What the brushes stand on, as it was when they were made.
let made = "";

function build() {
  const layer = document.getElementById("brushes");
  if (!layer || dragging) return;
  const heads = [...document.querySelectorAll("[data-axis]")];
  const stand = JSON.stringify(heads.map((head) => [head.dataset.axis, head.dataset.values]));
  if (layer.childElementCount && stand === made) return;
  made = stand;
  const focused = document.activeElement?.dataset.handle;
  const plot = () => layer.parentElement.querySelector("svg");
  const walker = plot().querySelector("[data-trial]") ? [makeWalker(plot)] : [];
  layer.replaceChildren(...heads.map((head) => new Brush(head).box), ...walker);
  if (focused) focusHandle(focused);
}

function focusHandle(name) {
  document.querySelector(`[data-handle="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}

// The exchange replaces the form and the brushes: what had the focus has it again, and what was open is.
let before = {};
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target.id !== "study-exchange") return;
  const active = document.activeElement;
  before = {
    handle: active?.dataset?.handle,
    field: active?.form === form() ? active?.name : "",
    open: document.getElementById("ranges")?.open,
  };
});
document.addEventListener("htmx:afterSettle", () => {
  build();
  const ranges = document.getElementById("ranges");
  if (ranges && before.open) ranges.open = true;
  if (before.handle) focusHandle(before.handle);
  else if (before.field) form()?.elements.namedItem(before.field)?.focus({ preventScroll: true });
  before = {};
});

// Short addresses; and the page stays where it is.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.elt.id !== FORM) return;
  for (const [name, value] of [...detail.formData]) if (value === "") detail.formData.delete(name);
  detail.path = detail.path.replace(/#.*/, "");
});
document.addEventListener("change", ({ target }) => {
  if (target.form?.id === FORM) send();
});
document.addEventListener("pointermove", (event) => {
  if (!dragging) point(event);
});

build();
// Results change the bounds of metrics (live.js).
const page = document.querySelector(".job-page");
new MutationObserver(build).observe(page, { subtree: true, childList: true, attributeFilter: ["data-values"] });
