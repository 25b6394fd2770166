// The page of shells: tabs, and two of them side by side. The address of the page says which are here:
// `shell` is the tab that is shown, `split` the one beside it, `tab` (KEY:RUN, and :w for one that is only watched)
// names each tab where there are several.

import { say } from "../texts.js";
import { Pane } from "./pane.js";
import { PasteQuestion } from "./paste.js";
import { randomKey } from "./typed.js";

const MOST = 8;
const KEY = /^[0-9a-f]{32}$/;

class ShellPage {
  constructor(root) {
    this.path = root.dataset.shells;
    this.run = root.dataset.run;
    this.mayType = root.dataset.types !== "no";
    for (const part of root.querySelectorAll("[data-page]")) this[part.dataset.page] = part;
    this.pasteQuestion = new PasteQuestion(this.pastequestion);
    this.linkQuestion = this.linkquestion;
    this.panes = [];
    this.split = null;
    this.add?.addEventListener("click", () => this.#add(this.where?.value || this.run));
    this.beside.addEventListener("click", () => this.#toggleSplit());
    this.tabs.addEventListener("keydown", (event) => this.#byKey(event));
    window.addEventListener("pagehide", () => this.panes.forEach((pane) => pane.store()));
    window.addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
    this.#read();
  }

  // The tabs that the address names.
  #read() {
    const query = new URLSearchParams(location.search);
    const given = query.get("shell") ?? "";
    const watch = query.has("watch");
    const tabs = query.getAll("tab").map((text) => text.split(":")).filter(([key]) => KEY.test(key)).slice(0, MOST);
    const first = { key: KEY.test(given) ? given : randomKey(), run: this.run, watch };
    const found = tabs.map(([key, run, how]) => ({ key, run: run || this.run, watch: how === "w" }));
    if (!found.some(({ key }) => key === first.key)) found.unshift(first);
    for (const each of found) this.#make(each);
    this.shown = this.panes.find(({ key }) => key === first.key);
    this.split = this.panes.find((pane) => pane.key === query.get("split") && pane !== this.shown) ?? null;
    this.#arrange();
  }

  #make(what) {
    const root = this.pane.content.firstElementChild.cloneNode(true);
    this.place.append(root);
    const pane = new Pane(root, this, what);
    root.id = `pane-${pane.key}`;
    root.addEventListener("focusin", () => this.#focused(pane));
    pane.close.addEventListener("click", () => this.#close(pane));
    this.panes.push(pane);
    return pane;
  }

  #add(run) {
    if (this.panes.length >= MOST) return;
    this.shown = this.#make({ key: randomKey(), run, watch: false });
    this.#arrange();
  }

  // A shell that is over makes room for a new one in the same replica.
  renew(pane) {
    pane.watch = false;
    pane.open(randomKey());
    pane.root.id = `pane-${pane.key}`;
    this.#arrange();
  }

  #close(pane) {
    const at = this.panes.indexOf(pane);
    this.panes.splice(at, 1);
    pane.leave();
    if (this.split === pane) this.split = null;
    if (this.shown === pane) this.shown = this.split ?? this.panes[Math.max(0, at - 1)];
    if (this.split === this.shown) this.split = null;
    this.#arrange();
  }

  #toggleSplit() {
    if (this.split) {
      this.split = null;
    } else {
      const others = this.panes.filter((pane) => pane !== this.shown);
      const usual = { key: randomKey(), run: this.shown.run, watch: false };
      this.split = others.at(-1) ?? (this.mayType ? this.#make(usual) : null);
    }
    this.#arrange();
  }

  #show(pane) {
    if (pane === this.split) this.split = this.shown;
    this.shown = pane;
    this.#arrange();
  }

  // The tab of the terminal that has the focus is the one that is marked.
  #focused(pane) {
    if (pane !== this.split) return;
    this.split = this.shown;
    this.shown = pane;
    this.#draw();
    this.changed();
  }

  #byKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const count = this.panes.length;
    this.#show(this.panes[(this.panes.indexOf(this.shown) + step + count) % count]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  leaveTerminal() {
    this.leave.focus();
  }

  #arrange() {
    for (const pane of this.panes) pane.root.hidden = pane !== this.shown && pane !== this.split;
    this.#draw();
    for (const pane of this.panes) pane.resize();
    this.changed();
    this.shown.terminal.focus();
    this.shown.reveal();
  }

  #draw() {
    const counts = new Map();
    const alone = this.panes.length === 1;
    this.tabs.hidden = alone;
    this.beside.setAttribute("aria-pressed", String(Boolean(this.split)));
    this.tabs.replaceChildren(
      ...this.panes.map((pane) => {
        const number = (counts.get(pane.run) ?? 0) + 1;
        counts.set(pane.run, number);
        return this.#tab(pane, number > 1 ? `${this.#nameOf(pane.run)} (${number})` : this.#nameOf(pane.run));
      }),
    );
  }

  #tab(pane, name) {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.role = "tab";
    tab.textContent = pane === this.split ? say("{name}, beside", { name }) : name;
    tab.setAttribute("aria-selected", String(pane === this.shown));
    tab.setAttribute("aria-controls", pane.root.id);
    tab.tabIndex = pane === this.shown ? 0 : -1;
    tab.addEventListener("click", () => this.#show(pane));
    pane.root.setAttribute("aria-label", name);
    pane.close.hidden = this.panes.length === 1;
    return tab;
  }

  #nameOf(run) {
    const option = [...(this.where?.options ?? [])].find(({ value }) => value === run);
    return option?.textContent.trim() || /-(workerpool\d+-\d+)-a\d+-r\d+$/.exec(run)?.[1] || run;
  }

  // What is shown is in the address of the page.
  changed() {
    const address = new URL(location.href);
    const query = address.searchParams;
    query.set("shell", this.shown.key);
    for (const name of ["tab", "split", "watch"]) query.delete(name);
    if (this.panes.length === 1 && this.shown.run === this.run) {
      if (this.shown.watch) query.set("watch", "");
    } else {
      for (const { key, run, watch } of this.panes) query.append("tab", `${key}:${run}${watch ? ":w" : ""}`);
      if (this.split) query.set("split", this.split.key);
    }
    history.replaceState(null, "", address);
  }
}

for (const root of document.querySelectorAll("[data-shells]")) new ShellPage(root);
