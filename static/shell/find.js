// Search in what a terminal has shown.

import { SearchAddon } from "../npm/xterm-search/lib/addon-search.mjs";
import { say } from "../texts.js";

const MARKS = {
  matchBackground: "#5c4a12",
  activeMatchBackground: "#b58900",
  matchOverviewRuler: "#b58900",
  activeMatchColorOverviewRuler: "#ffffff",
};

export class Find {
  // `bar`: the form with the field; `count` says how many there are.
  constructor(terminal, bar) {
    this.terminal = terminal;
    this.bar = bar;
    for (const part of bar.querySelectorAll("[data-find]")) this[part.dataset.find] = part;
    this.search = new SearchAddon({ highlightLimit: 1000 });
    terminal.loadAddon(this.search);
    this.search.onDidChangeResults(({ resultIndex, resultCount }) => {
      const where = { number: resultIndex + 1, count: resultCount };
      const found = resultIndex < 0 ? say("{count} found", where) : say("{number} of {count}", where);
      this.count.textContent = !this.field.value ? "" : resultCount ? found : say("Nothing found");
    });
    this.field.addEventListener("input", () => this.#go(-1, true));
    this.previous.addEventListener("click", () => this.#go(-1));
    this.next.addEventListener("click", () => this.#go(1));
    this.close.addEventListener("click", () => this.hide());
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.hide();
      if (event.key === "Enter" && event.target === this.field) this.#go(event.shiftKey ? 1 : -1);
    });
  }

  show() {
    this.bar.hidden = false;
    this.field.focus();
    this.field.select();
  }

  hide() {
    this.bar.hidden = true;
    this.search.clearDecorations();
    this.terminal.clearSelection();
    this.count.textContent = "";
    this.terminal.focus();
  }

  // Enter goes back in time, because the newest output is at the bottom.
  #go(direction, incremental = false) {
    const options = { decorations: MARKS, incremental };
    if (!this.field.value) this.search.clearDecorations(), (this.count.textContent = "");
    else if (direction > 0) this.search.findNext(this.field.value, options);
    else this.search.findPrevious(this.field.value, options);
  }
}
