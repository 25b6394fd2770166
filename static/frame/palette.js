// The command palette: a combobox whose list of options the server sends. The focus stays in the field; the chosen
// option is named by aria-activedescendant.

import { act } from "./acts.js";
import { closesBeside } from "./dialogs.js";

const { htmx } = window;
const palette = document.getElementById("palette");
const field = document.getElementById("palette-text");
const found = document.getElementById("palette-found");
const count = document.getElementById("palette-count");

// Without this script it is a plain field.
const COMBOBOX = { role: "combobox", "aria-expanded": "false", "aria-autocomplete": "list", "aria-haspopup": "listbox" };
for (const [name, value] of Object.entries(COMBOBOX)) field.setAttribute(name, value);

export function openPalette() {
  if (palette.open) return;
  field.value = "";
  palette.showModal();
  field.focus();
  htmx.trigger(field, "palette:open");
}

const options = () => [...found.querySelectorAll("[role=option]")];
const chosen = () => found.querySelector("[aria-selected=true]");

function choose(option) {
  for (const each of options()) each.setAttribute("aria-selected", String(each === option));
  if (option) {
    field.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  } else {
    field.removeAttribute("aria-activedescendant");
  }
}

function step(by) {
  const all = options();
  if (all.length) choose(all[(all.indexOf(chosen()) + by + all.length) % all.length]);
}

// The list is that of what was typed, unless its answer is still on the way.
function isCurrent() {
  return found.querySelector("[data-text]")?.dataset.text === field.value.trim().replace(/\s+/g, " ");
}

function onKey(event) {
  if (event.isComposing) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    step(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Escape") {
    // Otherwise the browser takes the first Esc to clear the field.
    event.preventDefault();
    palette.close();
  } else if (event.key === "Enter" && chosen() && isCurrent()) {
    // Otherwise the form leads to the page of the search.
    event.preventDefault();
    chosen().click();
  }
}

found.addEventListener("htmx:afterSwap", () => {
  const list = found.querySelector("[role=listbox]");
  field.setAttribute("aria-expanded", String(Boolean(list)));
  if (list) field.setAttribute("aria-controls", list.id);
  else field.removeAttribute("aria-controls");
  count.textContent = found.querySelector("[data-count]").dataset.count;
  choose(options()[0]);
});
found.addEventListener("click", (event) => {
  const option = event.target.closest("[role=option]");
  if (!option) return;
  palette.close();
  if (!option.dataset.act) return;
  event.preventDefault();
  act(option.dataset.act, option.href);
});
field.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  if (!event.target.closest("#open-palette") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openPalette();
});
closesBeside(palette);
