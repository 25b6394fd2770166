// What the person does with the log: buttons, scrolling, keys, and a tab that is hidden.

import { choose, chosen } from "./choices.js";

const HIDDEN_MS = 5000;
const EDGE = 400; // pixels from the edge at which more is fetched

export class Controls {
  constructor(view) {
    this.view = view;
    view.follow.addEventListener("click", () => (view.following ? view.pause() : view.resume()));
    view.more.addEventListener("click", () => view.resume());
    view.start.addEventListener("click", () => view.goto({ from: 0 }));
    view.end.addEventListener("click", () => view.resume());
    view.time.addEventListener("change", () => view.link.toTime(view.loaded.top.run || view.status?.run));
    view.wrap.addEventListener("click", () => {
      this.#wrap(!view.root.classList.contains("wrapped"));
      choose("wrap", view.root.classList.contains("wrapped") ? "on" : "off");
    });
    this.#wrapped(chosen("wrap") === "on");
    view.body.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    view.root.addEventListener("keydown", (event) => this.#escaped(event));
    new ResizeObserver(() => view.following && view.toEnd()).observe(view.body);
    document.addEventListener("visibilitychange", () => this.#visible());
  }

  // Esc closes the list of lines found, then unpicks lines.
  #escaped(event) {
    const { view } = this;
    if (event.key !== "Escape") return;
    if (view.finder.open) view.finder.close();
    else if (!view.link.unpick()) return;
    event.preventDefault();
    view.body.focus();
  }

  // The rows get other heights. What was seen stays: the end while following, else the first row.
  #wrap(on) {
    const { view } = this;
    const { top } = view.body.getBoundingClientRect();
    const first = view.rows.find((row) => row.node.getBoundingClientRect().bottom > top);
    const was = first?.node.getBoundingClientRect().top;
    this.#wrapped(on);
    if (view.following) view.toEnd();
    else if (first) view.body.scrollTop += first.node.getBoundingClientRect().top - was;
  }

  #wrapped(on) {
    const { root, wrap } = this.view;
    root.classList.toggle("wrapped", on);
    wrap.setAttribute("aria-pressed", String(on));
  }

  #scrolled() {
    const { view } = this;
    const { scrollTop, scrollHeight, clientHeight } = view.body;
    const up = scrollTop < (this.scrolledTo ?? 0);
    this.scrolledTo = scrollTop;
    view.root.classList.toggle("sideways", view.body.scrollLeft > 0);
    const below = scrollHeight - clientHeight - scrollTop;
    if (view.following && up && below > 40) view.pause();
    if (scrollTop < EDGE && up) view.earlierRows();
    if (below < EDGE && !up && !view.following) view.laterRows();
  }

  // A hidden tab receives no bytes. When it is shown again, it continues from where it was.
  #visible() {
    const { view } = this;
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.asleep = view.following;
        if (this.asleep) view.still();
      }, HIDDEN_MS);
    } else if (this.asleep) {
      this.asleep = false;
      view.resume();
    }
  }
}
