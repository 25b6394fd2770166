// Looking through all that is stored of the log, piece by piece, for the text in the search field. What is found stands
// in a list; choosing a line goes there.

const MOST_SHOWN = 1000;

const number = new Intl.NumberFormat("en");
const megabytes = (n) => `${number.format(Math.ceil(n / 1e6))} MB`;

export class Found {
  constructor(view) {
    this.view = view;
    this.turn = 0;
    view.whole.addEventListener("click", () => this.#look(view.search.value));
    view.unfind.addEventListener("click", () => this.close());
  }

  close() {
    this.turn += 1;
    this.view.found.hidden = true;
    this.view.foundLines.replaceChildren();
  }

  async #look(text) {
    const { view } = this;
    const run = view.bottom.run || view.status?.run;
    if (!text || !run) return view.search.focus();
    this.close();
    const turn = this.turn;
    view.found.hidden = false;
    let count = 0;
    for (let at = 0, all = 1; at < all && count < MOST_SHOWN; ) {
      this.#say(`${this.#lines(count)} so far…`);
      const answer = await this.#ask({ q: text, run, from: at }, turn);
      if (turn !== this.turn) return undefined;
      if (!answer) return undefined;
      for (const hit of answer.hits) view.foundLines.append(this.#line(hit));
      count += answer.hits.length;
      if (answer.searchedTo <= at && answer.searchedTo < answer.stored) break;
      at = answer.searchedTo;
      all = answer.stored;
      if (at < all) this.#say(`${this.#lines(count)} in ${megabytes(at)} of ${megabytes(all)}…`);
    }
    return this.#say(count < MOST_SHOWN ? this.#lines(count) : `The first ${this.#lines(count)}`);
  }

  #lines(count) {
    return `${count ? number.format(count) : "No"} line${count === 1 ? "" : "s"}`;
  }

  async #ask(what, turn) {
    try {
      const answer = await fetch(`${this.view.raw}/search?${new URLSearchParams(what)}`);
      if (answer.ok) return await answer.json();
      const { error } = await answer.json();
      throw new Error(error.message);
    } catch (problem) {
      if (turn === this.turn) this.#say(`Could not look through the log: ${problem.message}`);
      return null;
    }
  }

  #line(hit) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = hit.text;
    button.addEventListener("click", async () => {
      await this.view.goto({ from: hit.line });
      this.view.marks.at(hit.offset);
    });
    item.append(button);
    return item;
  }

  #say(text) {
    this.view.foundState.textContent = text;
  }
}
