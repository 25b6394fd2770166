// Search in the loaded rows: mark the rows that contain the text, and go from one to the next.

export class Marks {
  constructor(view) {
    this.view = view;
    this.text = "";
    this.hits = [];
    this.now = null;
    view.search.addEventListener("input", () => this.#look(view.search.value));
    view.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
    view.previous.addEventListener("click", () => this.step(-1));
    view.next.addEventListener("click", () => this.step(1));
  }

  #look(text) {
    this.text = text.toLowerCase();
    for (const row of this.hits) row.node.classList.remove("hit", "now");
    this.forget();
    this.changed(this.view.rows);
  }

  // Called with rows that are new or whose text changed.
  changed(rows) {
    if (!this.text) return this.#showCount();
    const known = new Set(this.hits);
    let fresh = false;
    for (const row of rows) {
      const hit = row.text.toLowerCase().includes(this.text);
      row.node.classList.toggle("hit", hit);
      row.node.classList.toggle("now", row === this.now);
      if (hit && !known.has(row)) fresh = this.hits.push(row) > 0;
      else if (!hit && known.has(row)) this.dropped([row]);
    }
    if (fresh) this.hits.sort((a, b) => this.#order(a, b));
    return this.#showCount();
  }

  dropped(rows) {
    if (!this.hits.length) return;
    const gone = new Set(rows);
    this.hits = this.hits.filter((row) => !gone.has(row));
    if (gone.has(this.now)) this.now = null;
    this.#showCount();
  }

  forget() {
    this.hits = [];
    this.now = null;
    this.#showCount();
  }

  step(by) {
    if (!this.hits.length) return;
    if (this.view.following) this.view.pause();
    const at = this.now ? this.hits.indexOf(this.now) + by : by > 0 ? 0 : -1;
    this.#show(this.hits.at(at % this.hits.length));
  }

  #show(row) {
    this.now?.node.classList.remove("now");
    this.now = row;
    this.now.node.classList.add("now");
    // Scroll only the log, not the page around it.
    const { body } = this.view;
    const { top, height } = this.now.node.getBoundingClientRect();
    body.scrollTop += top + height / 2 - body.getBoundingClientRect().top - body.clientHeight / 2;
    this.#showCount();
  }

  // Go to the line that holds the byte at `offset`.
  at(offset) {
    const found = this.view.rows.filter((row) => row.offset <= offset).at(-1);
    if (found) this.#show(found);
  }

  #order(a, b) {
    return a.node.compareDocumentPosition(b.node) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
  }

  #showCount() {
    const count = this.hits.length;
    const at = this.now ? `${this.hits.indexOf(this.now) + 1} of ` : "";
    this.view.count.textContent = this.text ? `${at}${count} in the loaded lines` : "";
    this.view.previous.disabled = this.view.next.disabled = !count;
  }
}
