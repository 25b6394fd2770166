// The log of all replicas: their lines in the order of their times. At the live end they come by a socket; earlier ones,
// and those of another time, are fetched as the person scrolls. The page holds MAX_ROWS rows.

import { choose, chosen } from "./choices.js";
import { Found } from "./found.js";
import { FORMATS, WIDTHS, keptFormat } from "./gutter.js";
import { Living } from "./living.js";
import { Marks } from "./marks.js";
import { MergedLink } from "./merged_link.js";
import { MergedLog, isBlank } from "./merged_logs.js";
import { MergedPages } from "./merged_pages.js";
import { MergedRows } from "./merged_rows.js";
import { paintRow } from "./paint.js";
import { ShownZone } from "./shown_zone.js";
import { SWITCHED } from "../frame/times.js";
import { number, say } from "../texts.js";
import { Wire, dot } from "../wire.js";

const MAX_ROWS = 4000;
const COLOURS = 12;
const FROM_RUNS = 30; // runs in one message: the server takes short ones only
const ACK_STEP = 64 * 1024;
const CHUNK = 400; // lines that are painted at once
const HIDDEN_MS = 5000;
const PAGES = 8; // pages of lines that are looked through for the one that is picked
const EDGE = 400; // pixels from the top and the end at which more lines are fetched

export class MergedView {
  constructor(root) {
    this.root = root;
    this.api = `/api/v1/jobs/${root.dataset.job}`;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    this.logs = []; // by their numbers, which stay over a reconnect
    this.numbers = new Map(); // of the id of a run: its number here
    this.queue = [];
    this.runsAreKnown = new Promise((known) => { this.knowRuns = known; });
    this.detached = false; // the live end is not among the rows that are loaded
    this.shownRows = new MergedRows(this.body);
    this.alive = new Living(this, this.living);
    this.replicas = root.dataset.replicas || (new URLSearchParams(location.search).get("replicas") ?? "");
    this.chosen = root.dataset.chosen; // those of them that the person chose, if any
    this.pages = new MergedPages(this.api, this.replicas);
    this.pages.from({ earlier: {} });
    this.link = new MergedLink(this);
    this.marks = new Marks(this);
    this.finder = new Found(this);
    this.shownRows.folding = chosen("fold") !== "off";
    this.times.value = keptFormat();
    this.zone = new ShownZone(this);
    this.#listen();
    this.#look();
    this.#follow(true);
    this.#say(say("Opening…"));
    this.#connect();
    this.link.open();
  }

  get rows() {
    return this.shownRows.all;
  }

  // ---- the socket

  #connect() {
    const query = this.replicas ? `?replicas=${encodeURIComponent(this.replicas)}` : "";
    this.wire = new Wire(`/ws/jobs/${this.root.dataset.job}/log${query}`, {
      opened: () => this.#opened(),
      text: (message) => this.#arrived(message),
      closed: ({ final, reason }) => {
        dot(final ? "off" : "lost");
        this.#say(final ? reason : say("Reconnecting…"), final ? "bad" : "warn");
      },
    });
  }

  #opened() {
    dot("live");
    this.acked = 0;
    this.there = []; // of each number that the server uses on this connection: our number
    const ends = this.detached ? [] : this.logs.filter((log) => log.end !== undefined).map((log) => [log.id, log.end]);
    for (let at = 0; at < ends.length; at += FROM_RUNS) {
      this.wire.send({ from: Object.fromEntries(ends.slice(at, at + FROM_RUNS)) });
    }
    this.wire.send({ begin: true, pause: !this.following });
  }

  #arrived(message) {
    if (message.runs) this.#runsBegin(message.runs);
    if (!message.rows) return;
    this.sent = message.sent;
    // Another time is shown.
    if (this.detached) return;
    for (const [run, ...part] of message.rows) {
      const [end, at, text, kind] = part;
      this.queue.push({ run: this.there[run], end, at, text, kind });
    }
    this.#drainSoon(0);
  }

  // Paint in the next frame, but rest as long as the last one took: the person can scroll and click meanwhile.
  #drainSoon(rest) {
    if (this.painting) return;
    this.painting = true;
    setTimeout(() => requestAnimationFrame(() => this.#drain()), rest);
  }

  #runsBegin(runs) {
    for (const run of runs) {
      if (!this.numbers.has(run.id)) {
        this.numbers.set(run.id, this.logs.length);
        this.logs.push(new MergedLog(this.logs.length, run));
      }
      this.there[run.number] = this.numbers.get(run.id);
      if (!this.detached) this.logs[this.there[run.number]].begin(run.from);
    }
    this.#showState();
    this.knowRuns();
  }

  #drain() {
    this.painting = false;
    const began = performance.now();
    // What would leave at the top at once is not painted. Who scrolls up sees it.
    for (const part of this.queue.splice(0, Math.max(0, this.queue.length - MAX_ROWS))) {
      const log = this.logs[part.run];
      log.skip(part);
      log.left({ end: part.end });
      this.#aboveAnew();
    }
    const changed = new Set();
    for (const part of this.queue.splice(0, CHUNK)) for (const line of this.logs[part.run].take(part)) changed.add(line);
    const rows = this.#settle(changed);
    for (const row of rows) this.paint(row);
    if (!this.detached) this.#leftAtTop(this.shownRows.trimTop(MAX_ROWS));
    this.marks.changed([...rows].filter((row) => row.node.isConnected));
    if (this.following) this.#toEnd();
    if (this.queue.length < CHUNK && this.sent - this.acked >= ACK_STEP) this.#ack();
    this.#showState();
    if (this.queue.length) this.#drainSoon(performance.now() - began);
  }

  #ack() {
    this.acked = this.sent;
    this.wire.send({ ack: this.sent });
  }

  // ---- the rows

  // Put these lines where they belong: to those that are being written, or into the log. Returns the rows to be painted.
  #settle(changed) {
    const rows = new Set();
    for (const run of new Set([...changed].map((line) => line.number))) {
      const living = this.detached ? [] : this.logs[run].living;
      for (const line of living) if (line.shown) changed.add(line);
      for (const line of this.alive.show(run, living)) changed.add(line);
    }
    for (const line of changed) {
      const hidden = this.alive.has(line) || isBlank(line);
      if (hidden && line.shown) this.#takeOut(line, rows);
      else if (!hidden && line.shown) rows.add(this.shownRows.change(line));
      else if (!hidden && !line.gone) rows.add(this.shownRows.add(line));
    }
    return rows;
  }

  #takeOut(line, rows) {
    const { shown } = line;
    const gone = this.shownRows.take(line);
    if (gone) {
      rows.delete(gone);
      this.marks.dropped([gone]);
    } else rows.add(shown);
  }

  paint(row, hits = []) {
    paintRow(row, hits);
    const format = FORMATS[this.times.value];
    row.gutter.dataset.line = "";
    row.gutter.dataset.time = format ? format(row.at, Number(this.root.dataset.began) || row.at) : "";
    row.gutter.after(this.#badge(row));
    if (this.link.picked) this.link.show(row);
  }

  #badge(row) {
    const badge = row.badge ?? document.createElement("a");
    const many = row.lines.length > 1;
    badge.className = `rank rank-${many ? "many" : row.number % COLOURS}`;
    badge.dataset.rank = many ? `×${row.lines.length}` : this.logs[row.number].replica;
    badge.row = row;
    row.badge = badge;
    return badge;
  }

  // Where a badge leads is found out when the pointer comes: thousands of lines a second have one.
  #pointed({ target }) {
    const { row } = target;
    if (!row || !target.classList.contains("rank")) return;
    const names = row.lines.map((line) => this.logs[line.number].replica);
    target.title = say("{names}: open the log of {name}", { names: names.join(", "), name: names[0] });
    target.href = this.addressOf(names[0], { run: row.run, byte: Math.max(0, row.lines[0].end - 1) });
  }

  addressOf(replica, query) {
    return `${this.root.dataset.logUrl.replace("NAME", replica)}?${new URLSearchParams(query)}`;
  }

  // The lines of rows that left at the top are earlier lines now.
  #leftAtTop(gone) {
    if (!gone.length) return;
    for (const row of gone) for (const line of row.lines) this.logs[line.number].left(line);
    this.#aboveAnew();
    this.marks.dropped(gone);
  }

  // The next page of earlier lines begins above the first row.
  #aboveAnew() {
    this.pages.from({ earlier: {}, later: this.pages.later });
  }

  // ---- other times

  async #fetchEarlier() {
    const { pages } = this;
    if (!this.rows.length && !pages.earlier?.until) return;
    if (pages.earlier) pages.earlier.until ??= (this.rows[0].at + 0.001).toFixed(3);
    const parts = await this.#fetched("earlier");
    if (!parts) return;
    this.#above(parts);
    // A page may be empty, or not fill what is seen.
    if (this.body.scrollTop < EDGE) setTimeout(() => this.#fetchEarlier());
    // One page is fetched at a time: one of later lines may have been left out meanwhile.
    if (this.detached && this.#atEnd()) setTimeout(() => this.#fetchLater());
  }

  async #fetchLater() {
    if (this.queue.length) return;
    const parts = await this.#fetched("later");
    if (!parts) return;
    for (const { id, ...part } of parts) {
      const run = this.numbers.get(id);
      if (part.end > (this.logs[run].end ?? -1)) this.queue.push({ run, ...part });
    }
    while (this.queue.length) this.#drain();
    const before = this.body.scrollHeight;
    this.#leftAtTop(this.shownRows.trimTop(MAX_ROWS));
    this.body.scrollTop -= before - this.body.scrollHeight;
    if (this.#atEnd()) setTimeout(() => this.#fetchLater());
  }

  async #fetched(kind) {
    try {
      return (await this.pages.next(kind))?.filter(({ id }) => this.numbers.has(id));
    } catch (problem) {
      this.#say(say("Lines could not be fetched: {problem}", { problem: problem.message }), "bad");
      return null;
    }
  }

  // Put these lines above the others, those that are there already left out. What is too much leaves at the end.
  #above(parts) {
    const before = this.body.scrollHeight;
    const of = new Map();
    for (const { id, ...part } of parts) {
      const log = this.logs[this.numbers.get(id)];
      if (!log.has(part.end)) of.set(log, [part, ...(of.get(log) ?? [])]);
    }
    const lines = [...of].flatMap(([log, some]) => log.earlier(some));
    lines.sort((a, b) => b.at - a.at || b.number - a.number || b.offset - a.offset);
    const changed = new Set(lines.map((line) => this.shownRows.add(line)));
    for (const row of changed) this.paint(row);
    this.body.scrollTop += this.body.scrollHeight - before;
    this.#trimEnd();
    this.marks.changed([...changed].filter((row) => row.node.isConnected));
    this.#showState();
  }

  // What left at the end is fetched again when the person scrolls down. The live end is not among the rows any more.
  #trimEnd() {
    const gone = this.shownRows.trimEnd(MAX_ROWS);
    if (!gone.length) return;
    for (const row of gone) for (const line of row.lines) this.logs[line.number].cutFrom(line);
    this.#detach();
    this.pages.later = { since: Math.max(0, this.rows.at(-1).at - 0.001).toFixed(3) };
    this.marks.dropped(gone);
  }

  #detach() {
    this.detached = true;
    this.queue = []; // fetched again, in their order, when the person comes to them
    this.alive.forget();
    this.#follow(false);
    this.wire.send({ pause: true });
  }

  // Show what was printed from this second on, and before it.
  async showAt(at) {
    this.#detach();
    await this.runsAreKnown;
    this.#forget();
    const until = at > 0 ? { until: Math.max(0, at - 0.001).toFixed(3) } : null;
    this.pages.from({ earlier: until, later: { since: at.toFixed(3) } });
    const { turn } = this.pages;
    // Many lines may have been printed in that second, and a page may be empty.
    for (let page = 0; page < PAGES && this.pages.later && !this.#isThere(); page += 1) {
      await this.#fetchLater();
      if (turn !== this.pages.turn) return;
    }
    const first = this.#pickedRow() ?? this.rows[0];
    await this.#fetchEarlier();
    if (first && turn === this.pages.turn) this.center(first);
  }

  #pickedRow() {
    return this.rows.find((row) => this.link.holds(row));
  }

  #isThere() {
    return this.link.picked ? this.#pickedRow() : this.rows.length;
  }

  // Show the line that is picked, with what all logs have around it.
  async showPicked() {
    if (this.#pickedRow()) this.pause();
    else await this.showAt(this.link.picked.at);
    this.rows.forEach((row) => this.link.show(row));
    const row = this.#pickedRow();
    if (!row) return;
    if (row.hits.length) this.marks.show(row);
    this.center(row);
  }

  // Go to a line that a search has found. It is shown among the lines of all logs if its log is here and its time known.
  toHit(hit) {
    if (hit.time && this.numbers.has(hit.run)) return this.link.toHit(hit);
    return location.assign(this.addressOf(hit.replica, { run: hit.run, byte: hit.offset }));
  }

  // Begin anew at the end: rows between what is shown and what comes now are gone.
  #anew() {
    this.detached = false;
    this.#forget();
    this.pages.from({ earlier: {} });
    this.wire.end();
    this.#connect();
  }

  #forget() {
    for (const log of this.logs) log.forget();
    this.queue = [];
    this.shownRows.forget();
    this.alive.forget();
    this.marks.forget();
  }

  // Fold or unfold: the rows are made again from the lines that they stand for.
  #refold() {
    const lines = this.rows.flatMap((row) => row.lines);
    this.shownRows.forget();
    this.marks.forget();
    for (const line of lines) line.shown = null;
    const rows = new Set(lines.map((line) => this.shownRows.add(line)));
    for (const row of rows) this.paint(row);
    this.marks.changed([...rows]);
    if (this.following) this.#toEnd();
  }

  // ---- moving and state

  #follow(on) {
    this.following = on;
    this.root.classList.toggle("following", on);
    this.follow.setAttribute("aria-pressed", String(on));
    this.follow.textContent = on ? say("Pause") : say("Follow");
    this.more.hidden = on;
  }

  pause() {
    this.#follow(false);
    this.wire?.send({ pause: true });
  }

  resume() {
    this.#follow(true);
    if (this.detached) this.#anew();
    else this.wire.send({ pause: false });
    this.link.moved();
    this.#toEnd();
  }

  center(row) {
    const { top, height } = row.node.getBoundingClientRect();
    this.body.scrollTop += top + height / 2 - this.body.getBoundingClientRect().top - this.body.clientHeight / 2;
  }

  #toEnd() {
    this.body.scrollTop = this.body.scrollHeight;
  }

  #say(text, tone = "") {
    this.state.textContent = text;
    this.state.dataset.tone = tone;
  }

  #showState() {
    const values = { rows: number.format(this.rows.length), logs: number.format(this.logs.length) };
    const newest = say("{rows} newest rows of {logs} logs, in the order of the hosts' clocks", values);
    this.#say(this.detached ? say("{rows} rows of {logs} logs, in the order of the hosts' clocks", values) : newest);
    this.empty.hidden = this.rows.length > 0 || !this.living.hidden;
  }

  #look() {
    this.root.dataset.times = this.times.value;
    this.root.style.setProperty("--gutter", `${WIDTHS[this.times.value] ?? 0}ch`);
    this.fold.setAttribute("aria-pressed", String(this.shownRows.folding));
  }

  // ---- what the person does

  #listen() {
    this.follow.addEventListener("click", () => (this.following ? this.pause() : this.resume()));
    this.more.addEventListener("click", () => this.resume());
    this.end.addEventListener("click", () => this.resume());
    this.start.addEventListener("click", () => {
      this.link.moved();
      this.showAt(0);
    });
    this.wrap.addEventListener("click", () => {
      this.#wrapped(!this.root.classList.contains("wrapped"));
      choose("wrap", this.root.classList.contains("wrapped") ? "on" : "off");
    });
    this.#wrapped(chosen("wrap") === "on");
    this.fold.addEventListener("click", () => {
      this.shownRows.folding = !this.shownRows.folding;
      choose("fold", this.shownRows.folding ? "on" : "off");
      this.#look();
      this.#refold();
    });
    this.times.addEventListener("change", () => {
      choose("times", this.times.value);
      this.#look();
      this.#repaint();
    });
    document.addEventListener(SWITCHED, () => this.#repaint());
    for (const box of [this.body, this.living]) box.addEventListener("pointerover", (event) => this.#pointed(event));
    this.body.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.finder.open) return;
      event.preventDefault();
      this.finder.close();
      this.body.focus();
    });
    new ResizeObserver(() => this.following && this.#toEnd()).observe(this.body);
    document.addEventListener("visibilitychange", () => this.#visible());
  }

  #repaint() {
    for (const row of this.rows) this.paint(row, row.hits);
    this.alive.repaint();
  }

  #wrapped(on) {
    this.root.classList.toggle("wrapped", on);
    this.wrap.setAttribute("aria-pressed", String(on));
    if (this.following) this.#toEnd();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.body;
    const up = scrollTop < (this.scrolledTo ?? 0);
    this.scrolledTo = scrollTop;
    this.root.classList.toggle("sideways", this.body.scrollLeft > 0);
    if (this.following && up && scrollHeight - clientHeight - scrollTop > 40) this.pause();
    if (up && scrollTop < EDGE) this.#fetchEarlier();
    if (!up && this.detached && this.#atEnd()) this.#fetchLater();
  }

  #atEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.body;
    return scrollHeight - clientHeight - scrollTop < EDGE;
  }

  // A hidden tab receives nothing. When it is shown again, it goes on from where it was.
  #visible() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.asleep = this.following;
        if (this.asleep) this.pause();
      }, HIDDEN_MS);
    } else if (this.asleep) {
      this.asleep = false;
      this.resume();
    }
  }
}

for (const root of document.querySelectorAll("[data-merged]")) new MergedView(root);
