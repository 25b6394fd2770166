// The replay of a recorded shell. Nobody types into it, and what it shows cannot answer: a recording may be hostile.

import { Unicode11Addon } from "../npm/xterm-unicode11/lib/addon-unicode11.mjs";
import { Terminal } from "../npm/xterm/lib/xterm.mjs";
import { say } from "../texts.js";
import { NotReadable, readCast, sizeOf } from "./cast.js";
import { Find } from "./find.js";
import { FontSize } from "./font.js";
import { copy, meaning, systemOf } from "./keys.js";
import { followLinks } from "./links.js";
import { THEME } from "./theme.js";

const STEP_S = 5;
// A jump draws at most so much again, as a person who comes to a shell later gets no more of it.
const MOST_AGAIN = 8 << 20;
const AT_ONCE = 256 * 1024;
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/g;
const SYSTEM = systemOf(navigator);

class Player {
  constructor(root) {
    this.root = root;
    for (const part of root.querySelectorAll("[data-replay]")) this[part.dataset.replay] = part;
    const font = getComputedStyle(root).getPropertyValue("--mono");
    this.font = new FontSize(this, (size) => (this.terminal.options.fontSize = size));
    const look = { fontFamily: font, fontSize: this.font.size, lineHeight: 1.2, theme: THEME };
    this.terminal = new Terminal({ ...look, scrollback: 20_000, disableStdin: true, allowProposedApi: true });
    this.terminal.loadAddon(new Unicode11Addon());
    this.terminal.unicode.activeVersion = "11";
    this.terminal.open(this.mount);
    followLinks(this.terminal, this.address, this.linkquestion);
    this.found = new Find(this.terminal, this.find);
    this.position = 0; // seconds on the timeline
    this.next = 0; // the first event that is not shown
    this.turn = 0;
    this.playing = this.busy = this.sized = false;
    this.#load(root.dataset.recording);
  }

  async #load(address) {
    this.#say(say("Loading…"));
    try {
      const answer = await fetch(address, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      this.cast = await readCast(answer.body, () => {});
    } catch (problem) {
      const unreadable = problem instanceof NotReadable;
      this.#say(unreadable ? say("This recording cannot be read.") : say("The recording could not be loaded. Reload the page."));
      return;
    }
    this.#say("");
    this.#listen();
    this.#measure();
    this.bar.hidden = false;
    await this.#goTo(0);
    this.play.focus({ preventScroll: true });
  }

  #listen() {
    this.play.addEventListener("click", () => this.#toggle());
    this.seek.addEventListener("input", () => this.#goTo(this.seek.valueAsNumber / 10));
    this.shorten.addEventListener("change", () => this.#changeTimeline());
    this.look.addEventListener("click", () => this.found.show());
    this.root.addEventListener("keydown", (event) => this.#byKey(event));
    this.terminal.attachCustomKeyEventHandler((event) => this.#forTerminal(event));
  }

  #measure() {
    this.timeline = this.cast.timeline(this.shorten.checked);
    this.length = this.timeline.at(-1) ?? 0;
    this.seek.max = String(Math.ceil(this.length * 10));
  }

  // The same event is shown, at its time on the other timeline.
  #changeTimeline() {
    const shown = this.next;
    this.#measure();
    this.position = shown ? this.timeline[shown - 1] : 0;
    this.#draw();
  }

  #byKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest("input, select, button, a, summary, dialog")) {
      if (event.target !== this.seek) return;
    }
    const to = {
      ArrowLeft: this.position - STEP_S,
      ArrowRight: this.position + STEP_S,
      Home: 0,
      End: this.length,
    }[event.key];
    if (event.key === " ") this.#toggle();
    else if (to !== undefined) this.#goTo(to);
    else return;
    event.preventDefault();
  }

  // xterm keeps no key: all belong to the page.
  #forTerminal(event) {
    const what = meaning(event, SYSTEM, this.terminal.hasSelection());
    if (what === "copy" || what === "find") {
      event.preventDefault();
      if (event.type === "keydown" && what === "copy") copy(this.terminal.getSelection());
      if (event.type === "keydown" && what === "find") this.found.show();
    }
    return false;
  }

  #toggle() {
    if (this.playing) return this.#pause();
    if (this.position >= this.length) this.#goTo(0).then(() => this.#start());
    else this.#start();
  }

  #start() {
    this.playing = true;
    this.turn += 1;
    this.startedAt = performance.now();
    this.#draw();
    this.#later(this.turn);
  }

  #pause() {
    this.playing = false;
    this.#draw();
  }

  #later(turn) {
    requestAnimationFrame((now) => turn === this.turn && this.playing && this.#step(now, turn));
  }

  async #step(now, turn) {
    const rate = Number(this.speed.value) || 1;
    this.position = Math.min(this.length, this.position + (Math.max(0, now - this.startedAt) / 1000) * rate);
    this.startedAt = now;
    await this.#render();
    if (this.position >= this.length) this.#pause();
    this.#draw();
    this.#later(turn);
  }

  async #goTo(time) {
    this.position = Math.min(this.length, Math.max(0, time));
    this.#draw();
    await this.#render();
  }

  // Show the screen of the position, also where that changes meanwhile. To go back is to begin again.
  async #render() {
    if (this.busy) return;
    this.busy = true;
    for (;;) {
      const to = this.cast.after(this.position, this.timeline);
      if (to === this.next && this.sized) break;
      await this.#jump(to);
    }
    this.busy = false;
  }

  async #jump(to) {
    const first = this.#firstOf(to);
    if (to < this.next || first > this.next || !this.sized) {
      this.sized = true;
      this.#say("");
      this.terminal.reset();
      const { cols, rows } = this.#sizeBefore(first);
      this.terminal.resize(cols, rows);
      this.next = first;
    }
    await this.#show(to);
  }

  // From which event on the output is drawn, to show the screen before event `to`.
  #firstOf(to) {
    let size = 0;
    for (let index = to - 1; index >= 0; index -= 1) {
      size += this.cast.events[index].text.length;
      if (size > MOST_AGAIN) return index;
    }
    return 0;
  }

  #sizeBefore(index) {
    for (let at = index - 1; at >= 0; at -= 1) {
      const size = this.cast.events[at].kind === "r" && resized(this.cast.events[at].text);
      if (size) return size;
    }
    return this.cast.size;
  }

  // Show the events before `to`, and wait until they are on the screen.
  async #show(to) {
    while (this.next < to) {
      let text = "";
      while (this.next < to && text.length < AT_ONCE) {
        const event = this.cast.events[this.next];
        if (event.kind !== "o" && text) break;
        this.next += 1;
        if (event.kind === "o") text += event.text;
        else this.#happened(event);
      }
      if (text) await new Promise((done) => this.terminal.write(text, done));
    }
  }

  #happened({ kind, text }) {
    const size = kind === "r" && resized(text);
    if (size) this.terminal.resize(size.cols, size.rows);
    const words = text.slice(0, 200).replace(CONTROL, " ");
    if (kind === "m") this.#say(words);
    if (kind === "x") this.#say(say("The shell has ended with status {status}.", { status: words }));
  }

  #draw() {
    this.play.textContent = this.playing ? say("Pause") : say("Play");
    this.seek.value = String(this.position * 10);
    const where = say("{at} of {length}", { at: clock(this.position), length: clock(this.length) });
    this.time.textContent = where;
    this.seek.setAttribute("aria-valuetext", where);
  }

  #say(text) {
    this.note.textContent = text;
  }
}

function resized(text) {
  const found = /^(\d{1,6})x(\d{1,6})$/.exec(text);
  return found && sizeOf(Number(found[1]), Number(found[2]));
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, "0");
  const hours = Math.floor(minutes / 60);
  return hours ? `${hours}:${String(minutes % 60).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

for (const root of document.querySelectorAll("[data-recording]")) new Player(root);
