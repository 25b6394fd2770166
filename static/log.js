// The log viewer: a window of rows over a log of any size. At the live end it follows a socket. Elsewhere it stands
// still, and fetches rows above and below when the person scrolls there.

import { Controls } from "./log/controls.js";
import { Footer } from "./log/footer.js";
import { Found } from "./log/found.js";
import { Gutter } from "./log/gutter.js";
import { Lines } from "./log/lines.js";
import { Link } from "./log/link.js";
import { Marks } from "./log/marks.js";
import { gap, note } from "./log/notes.js";
import { Runs } from "./log/runs.js";
import { ShownZone } from "./log/shown_zone.js";
import { Stored } from "./log/stored.js";
import { Window } from "./log/window.js";
import { say } from "./texts.js";
import { Wire, dot } from "./wire.js";

const TAIL = 128 * 1024; // bytes that are shown at first
const STEP = 128 * 1024; // bytes of one fetch
const NEAR = 256 * 1024; // closer to the end than this, the socket continues instead of jumping
const ACK_STEP = 32 * 1024; // far below what the server sends ahead, so a quiet log needs no message back

export class LogView {
  constructor(root) {
    this.root = root;
    this.api = `/api/v1/jobs/${root.dataset.job}`;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    this.loaded = new Window(this);
    this.stored = new Stored(this);
    this.footer = new Footer(this, this.state);
    this.marks = new Marks(this);
    this.choice = new Runs(this);
    this.finder = new Found(this);
    this.gutter = new Gutter(this);
    this.zone = new ShownZone(this);
    this.link = new Link(this);
    this.rested = 0; // before this time nothing is painted
    this.controls = new Controls(this);
    this.show(root.dataset.replica, root.dataset.run || new URLSearchParams(location.search).get("run") || "", true);
    this.link.open();
  }

  get rows() {
    return this.loaded.rows;
  }

  get bottom() {
    return this.loaded.bottom;
  }

  get shownRun() {
    return this.bottom.run || this.status?.run;
  }

  paint(row, hits) {
    this.loaded.paint(row, hits);
  }

  // ---- which log

  show(replica, run = "", first = false) {
    this.wire?.end();
    this.replica = replica;
    this.finder.moved();
    this.#name();
    this.namedRun = run;
    this.raw = `${this.api}/replicas/${replica}/log`;
    this.status = null;
    this.queue = [];
    this.asked = 0;
    this.loaded.clear({ run, offset: 0 });
    this.#follow(true);
    this.footer.say(say("Opening…"));
    const query = run ? `?run=${encodeURIComponent(run)}` : "";
    this.wire = new Wire(`/ws/jobs/${this.root.dataset.job}/log/${replica}${query}`, {
      opened: () => this.#opened(),
      text: (document) => this.#queue(document),
      bytes: (data) => this.#queue(data),
      closed: ({ final, reason }) => {
        dot(final ? "off" : "lost");
        this.footer.say(final ? reason : say("Reconnecting…"), final ? "bad" : "warn");
      },
    });
    this.choice.look();
    if (!first) this.link.moved();
  }

  // Show the name of the replica: in the title and the labels for screen readers.
  #name() {
    for (const name of document.querySelectorAll("[data-log-name]")) name.textContent = this.replica;
    this.bar.setAttribute("aria-label", say("Log of {replica}", { replica: this.replica }));
    this.body.setAttribute("aria-label", say("Output of {replica}", { replica: this.replica }));
  }

  #opened() {
    dot("live");
    this.received = this.acked = 0;
    this.queue = [];
    this.wire.send({ times: Boolean(this.gutter.format) });
    // After an interruption, continue after the last byte that arrived.
    this.#ask(this.status && this.bottom.run ? { run: this.bottom.run, from: this.bottom.offset } : { tail: TAIL });
    this.wire.send({ pause: !this.live });
  }

  // Ask for a place in the log. Bytes of the old place may still arrive. Those of the new place follow the header with
  // the same id.
  #ask(place) {
    this.asked += 1;
    this.awaiting = true;
    this.wire.send({ ...place, id: this.asked });
  }

  // ---- incoming bytes and headers

  // Paint in the next frame, but rest for as long as the last one took: the person can scroll and type meanwhile.
  #queue(item) {
    this.queue.push(item);
    if (this.painting) return;
    this.painting = true;
    const inFrame = () => requestAnimationFrame(() => this.#drain());
    const rest = this.rested - performance.now();
    if (rest > 0) setTimeout(inFrame, rest);
    else inFrame();
  }

  #drain() {
    this.painting = false;
    const began = performance.now();
    for (const item of this.queue.splice(0)) {
      if (item instanceof Uint8Array) this.#bytes(item);
      else this.#header(item);
    }
    this.loaded.showPushed();
    if (this.live && !this.awaiting) this.loaded.moveBottom();
    this.loaded.trimTop();
    if (this.following) this.toEnd();
    if (this.received - this.acked >= ACK_STEP) this.#ack();
    this.footer.show();
    // After the browser has laid out and painted what is new.
    setTimeout(() => { this.rested = 2 * performance.now() - began; });
  }

  #bytes(data) {
    this.received += data.length;
    if (this.live && !this.awaiting) this.loaded.push(data);
  }

  #ack() {
    this.acked = this.received;
    this.wire.send({ ack: this.received });
  }

  #header(header) {
    if (header.waiting) return this.footer.say(header.waiting);
    if (header.closed) return undefined;
    if (header.times) return this.gutter.add(header.run, header.times);
    const here = this.live && !this.awaiting;
    if (header.gap) {
      if (here) this.#gapBegins(header);
      return undefined;
    }
    const before = this.status;
    this.status = { ...(before?.run === header.run ? before : {}), ...header };
    if (header.jump && header.id === this.asked) this.#jumped(header);
    if (header.restart && this.live && !this.awaiting) this.#runBegins(header);
    if (before?.newest_run !== header.newest_run) this.choice.look();
    return undefined;
  }

  #jumped(header) {
    this.awaiting = false;
    const goesOn = header.run === this.bottom.run && header.at === this.bottom.offset && this.rows.length;
    if (this.live && !goesOn) this.loaded.clear({ run: header.run, offset: header.at });
  }

  #runBegins(header) {
    const { attempt, number, host } = header;
    const start = number + 1;
    const text = say("Started again: attempt {attempt}, start {start}, on {host}", { attempt, start, host });
    this.loaded.add(note(header.run, 0, text, "restart"), new Lines(header.run, header.at));
    this.gutter.place(header.run, header.at, 0, this.raw);
  }

  #gapBegins({ run, gap: reason, at, to }) {
    this.loaded.add(gap(run, at, to, reason));
    this.loaded.lines.skipTo(to);
  }

  // ---- moving

  #follow(on) {
    this.following = on;
    if (on) this.live = true;
    this.root.classList.toggle("following", on);
    this.follow.setAttribute("aria-pressed", String(on));
    this.follow.textContent = on ? say("Pause") : say("Follow");
    this.more.hidden = on;
  }

  // Leave the live end: the socket sends only sizes from now on.
  still() {
    this.#follow(false);
    this.live = false;
    this.wire?.send({ pause: true });
  }

  pause() {
    this.still();
    this.footer.show();
  }

  // Go to the newest line: continue where the window ends if that is near, else jump.
  resume() {
    const near = this.status && this.rows.length && this.bottom.run === this.status.run;
    const behind = near ? this.status.stored - this.bottom.offset : Infinity;
    this.#follow(true);
    this.#ask(behind > NEAR ? { tail: TAIL } : { run: this.bottom.run, from: this.bottom.offset });
    this.wire.send({ pause: false });
    this.link.followed();
    this.toEnd();
  }

  toEnd() {
    this.body.scrollTop = this.body.scrollHeight;
  }

  // Scroll the log, not the page around it, so that the row is in the middle.
  center(row) {
    const { top, height } = row.node.getBoundingClientRect();
    this.body.scrollTop += top + height / 2 - this.body.getBoundingClientRect().top - this.body.clientHeight / 2;
  }

  async goto(where, run = this.loaded.top.run || this.status?.run) {
    if (!run) return;
    this.still();
    const piece = await this.stored.fetch(run, { ...where, limit: STEP });
    if (!piece) return;
    this.loaded.clear({ run, offset: piece.from });
    this.loaded.addBelow(piece);
    this.gutter.fetchTimes(run, piece.from, piece.to, this.raw);
    this.body.scrollTop = 0;
    this.footer.show();
  }

  // Go to a line that a search has found, in whichever log it is.
  async toHit(hit) {
    const other = hit.replica && (hit.replica !== this.replica || hit.run !== this.shownRun);
    if (other) this.show(hit.replica, hit.run);
    await this.goto({ from: hit.line }, hit.run);
    this.marks.at(hit.offset);
  }

  async earlierRows() {
    const { run, offset } = this.loaded.top;
    if (this.stored.fetching || !offset || !run) return;
    const piece = await this.stored.fetch(run, { from: Math.max(0, offset - STEP), to: offset });
    const { top } = this.loaded;
    if (!piece || top.offset !== offset || top.run !== run) return;
    this.loaded.addAbove(piece);
    this.gutter.fetchTimes(run, piece.from, offset, this.raw);
    if (this.loaded.trimBottom()) this.still();
    this.footer.show();
  }

  async laterRows() {
    if (this.stored.fetching || this.live || !this.status) return;
    const { run, offset } = this.bottom;
    if (run === this.status.run && offset >= this.status.stored - NEAR) return this.resume();
    const piece = await this.stored.fetch(run, { from: offset, to: offset + STEP });
    if (!piece || this.bottom.offset !== offset || this.live) return undefined;
    if (piece.to === offset) return this.resume();
    this.loaded.addBelow(piece);
    this.gutter.fetchTimes(run, piece.from, piece.to, this.raw);
    this.loaded.trimTop();
    return this.footer.show();
  }

  // Where this line of the run begins: {run, line, offset}.
  placeOf(line, run = "") {
    return this.stored.lines({ line, ...(run ? { run } : {}) });
  }

  // The number of the line that holds this byte.
  async lineAt(run, offset) {
    return (await this.stored.lines({ run, from: offset }))?.line;
  }

  // The format of times has changed: the socket sends times if they are shown.
  timesWanted() {
    if (!this.bottom) return;
    this.wire.send({ times: Boolean(this.gutter.format) });
    const { run, offset } = this.loaded.top;
    if (run && run === this.bottom.run) this.gutter.fetchTimes(run, offset, this.bottom.offset, this.raw);
  }
}

for (const root of document.querySelectorAll("[data-log]")) {
  const view = new LogView(root);
  // A replica was chosen without a new page: the head of the log names it.
  document.addEventListener("htmx:afterSettle", () => {
    const chosen = document.querySelector("[data-log-of]")?.dataset.logOf ?? view.replica;
    if (chosen === root.dataset.replica) return;
    root.dataset.replica = chosen;
    view.show(chosen);
  });
}
