// The log of all replicas: their newest lines in the order of their times, as they come. A line that many replicas print
// at about the same time is one row with their number. The page holds MAX_ROWS rows; the socket sends what is newer, and
// earlier lines are fetched when the person scrolls up.

import { Ansi, PLAIN } from "./ansi.js";
import { choose, chosen } from "./choices.js";
import { Found } from "./found.js";
import { FORMATS, WIDTHS, keptFormat } from "./gutter.js";
import { Marks } from "./marks.js";
import { paintRow } from "./paint.js";
import { number, say } from "../texts.js";
import { Wire, dot } from "../wire.js";

const MAX_ROWS = 4000;
const FOLD_S = 10; // equal lines within so many seconds are one row
const COLOURS = 12;
const FROM_RUNS = 30; // runs in one message: the server takes short ones only
const ACK_STEP = 64 * 1024;
const CHUNK = 400; // lines that are painted at once
const HIDDEN_MS = 5000;
const EDGE = 400; // pixels from the top at which earlier lines are fetched

// What ansi.js looks at: controls, directions, and letters of no width.
const SPECIAL = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/;


export class MergedView {
  constructor(root) {
    this.root = root;
    this.api = `/api/v1/jobs/${root.dataset.job}`;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    this.rows = [];
    this.runs = []; // what the server said of each run, by its number
    this.numbers = new Map(); // of the id of a run: its number here, which stays over a reconnect
    this.ends = new Map(); // of the id of a run: where its last line that came ends
    this.firsts = new Map(); // of the id of a run: where the first of its lines that came ends
    this.before = {}; // what the next fetch of earlier lines asks for; null if there are none
    this.queue = [];
    this.link = { search: () => this.#toAddress() };
    this.marks = new Marks(this);
    this.finder = new Found(this);
    this.folding = chosen("fold") !== "off";
    this.times.value = keptFormat();
    this.#listen();
    this.#look();
    this.#follow(true);
    this.#say(say("Opening…"));
    this.replicas = new URLSearchParams(location.search).get("replicas") ?? "";
    this.#connect();
    this.#fromAddress();
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
    const ends = [...this.ends];
    for (let at = 0; at < ends.length; at += FROM_RUNS) {
      this.wire.send({ from: Object.fromEntries(ends.slice(at, at + FROM_RUNS)) });
    }
    this.wire.send({ begin: true, pause: !this.following });
  }

  #arrived(message) {
    if (message.runs) this.#runsBegin(message.runs);
    if (!message.rows) return;
    for (const [run, end, at, text, missing] of message.rows) {
      const ours = this.there[run];
      const { id } = this.runs[ours];
      this.ends.set(id, Math.max(end, this.ends.get(id)));
      if (!this.firsts.has(id)) this.firsts.set(id, end);
      this.queue.push({ run: ours, end, at, text, missing });
    }
    this.sent = message.sent;
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
        this.numbers.set(run.id, this.runs.length);
        this.runs.push(run);
      }
      this.there[run.number] = this.numbers.get(run.id);
      if (!this.ends.has(run.id)) this.ends.set(run.id, run.from);
    }
    this.#showState();
  }

  #drain() {
    this.painting = false;
    const began = performance.now();
    // What would leave at the top at once is not painted. Who scrolls up sees it.
    for (const line of this.queue.splice(0, Math.max(0, this.queue.length - MAX_ROWS))) this.#left(line.run, line.end);
    const changed = new Set();
    for (const line of this.queue.splice(0, CHUNK)) changed.add(this.#add(line));
    for (const row of changed) this.paint(row);
    this.#trim();
    this.marks.changed([...changed].filter((row) => row.node.isConnected));
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

  // Returns the row of the line: a new one, or the one that it is folded into.
  #add(line) {
    const known = this.folding && !line.missing ? this.#equal(line) : null;
    if (known) {
      known.runs.push(line.run);
      known.ends.push(line.end);
      return known;
    }
    const row = { ...line, runs: [line.run], ends: [line.end], kind: line.missing ? "gap" : "", hits: [], node: document.createElement("div") };
    row.pieces = pieces(line.text);
    row.text = row.pieces.length === 1 ? row.pieces[0].text : row.pieces.map((piece) => piece.text).join("");
    this.#place(row);
    if (this.folding && !row.kind) this.newest.set(row.text, row);
    return row;
  }

  // The row with the same text that another replica printed at about the same time.
  #equal({ run, at, text }) {
    const row = this.newest.get(plain(text));
    const near = row?.node.isConnected && Math.abs(row.at - at) <= FOLD_S;
    return near && !row.runs.includes(run) ? row : null;
  }

  // By time, and the lines of one run in their order. Nearly always that is at the end; of earlier lines, at the top.
  #place(row) {
    let at = this.rows.length;
    if (at && after(this.rows[0], row)) at = 0;
    while (at > 0 && after(this.rows[at - 1], row)) at -= 1;
    if (at === this.rows.length) this.body.append(row.node);
    else this.rows[at].node.before(row.node);
    this.rows.splice(at, 0, row);
  }

  paint(row, hits = []) {
    paintRow(row, hits);
    const format = FORMATS[this.times.value];
    row.gutter.dataset.line = "";
    row.gutter.dataset.time = format ? format(row.at, this.rows[0]?.at ?? row.at) : "";
    row.gutter.after(this.#badge(row));
  }

  #badge(row) {
    const badge = row.badge ?? document.createElement("a");
    const many = row.runs.length > 1;
    badge.className = `rank rank-${many ? "many" : row.run % COLOURS}`;
    badge.dataset.rank = many ? `×${row.runs.length}` : this.runs[row.run].replica;
    badge.row = row;
    row.badge = badge;
    return badge;
  }

  // Where a badge leads is found out when the pointer comes: thousands of lines a second have one.
  #pointed({ target }) {
    const { row } = target;
    if (!row || !target.classList.contains("rank")) return;
    const names = row.runs.map((run) => this.runs[run].replica);
    target.title = `${names.join(", ")}: open the log of ${names[0]}`;
    target.href = this.addressOf(names[0], { run: this.runs[row.run].id, byte: Math.max(0, row.end - 1) });
  }

  addressOf(replica, query) {
    return `${this.root.dataset.logUrl.replace("NAME", replica)}?${new URLSearchParams(query)}`;
  }

  #trim() {
    const gone = this.rows.splice(0, Math.max(0, this.rows.length - MAX_ROWS));
    for (const row of gone) {
      row.runs.forEach((run, index) => this.#left(run, row.ends[index]));
      row.node.remove();
      if (this.newest.get(row.text) === row) this.newest.delete(row.text);
    }
    this.marks.dropped(gone);
  }

  // ---- earlier lines

  // This line is not in the window any more: it is one of the earlier lines now.
  #left(run, end) {
    const { id } = this.runs[run];
    this.firsts.set(id, Math.max(this.firsts.get(id), end + 1));
    this.before = {};
  }

  async #fetchEarlier() {
    if (this.fetching || !this.before || !this.rows.length) return;
    this.fetching = true;
    const { before: earlier, firsts } = this;
    earlier.until ??= (this.rows[0].at + 0.001).toFixed(3);
    try {
      const query = new URLSearchParams({ ...earlier, ...(this.replicas ? { replicas: this.replicas } : {}) });
      const answer = await fetch(`${this.api}/log/earlier?${query}`);
      if (!answer.ok) throw new Error(say("the server answered {status}", { status: answer.status }));
      const { lines, nextPageToken } = await answer.json();
      if (firsts !== this.firsts) return;
      this.before = nextPageToken ? { ...earlier, pageToken: nextPageToken } : null;
      this.#above(lines);
      // A page may be empty, or not fill what is seen.
      if (this.body.scrollTop < EDGE) setTimeout(() => this.#fetchEarlier());
    } catch (problem) {
      this.#say(say("Earlier lines could not be fetched: {problem}", { problem: problem.message }), "bad");
    } finally {
      this.fetching = false;
    }
  }

  // Put these lines above the others, those that are there already left out. What is too much leaves at the end.
  #above(lines) {
    const before = this.body.scrollHeight;
    const changed = new Set();
    for (const [id, end, at, text, missing] of lines) {
      const run = this.numbers.get(id);
      if (run === undefined || end >= (this.firsts.get(id) ?? this.ends.get(id) + 1)) continue;
      this.firsts.set(id, end);
      changed.add(this.#add({ run, end, at, text, missing }));
    }
    for (const row of changed) this.paint(row);
    this.body.scrollTop += this.body.scrollHeight - before;
    const gone = this.rows.splice(MAX_ROWS);
    this.cut ||= gone.length > 0;
    for (const row of gone) row.node.remove();
    this.marks.dropped(gone);
    this.marks.changed([...changed].filter((row) => row.node.isConnected));
    this.#showState();
  }

  // Begin anew at the end: rows between what is shown and what comes now are gone.
  #anew() {
    this.cut = false;
    this.rows = [];
    this.newest = new Map();
    this.ends.clear();
    this.firsts = new Map();
    this.before = {};
    this.queue = [];
    this.body.replaceChildren();
    this.marks.forget();
    this.wire.end();
    this.#connect();
  }

  // Fold or unfold: the rows are made again from the lines that they stand for.
  #refold() {
    const lines = this.rows.flatMap((row) =>
      row.runs.map((run, index) => ({ ...row, run, end: row.ends[index], missing: row.kind === "gap" })),
    );
    this.rows = [];
    this.newest = new Map();
    this.body.replaceChildren();
    this.marks.forget();
    this.queue.unshift(...lines.map(({ run, end, at, text, missing }) => ({ run, end, at, text, missing })));
    this.#drain();
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
    if (this.cut) this.#anew();
    else this.wire.send({ pause: false });
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
    const values = { rows: number.format(this.rows.length), logs: number.format(this.runs.length) };
    this.#say(say("{rows} newest rows of {logs} logs, in the order of the hosts' clocks", values));
    this.empty.hidden = this.rows.length > 0;
  }

  #look() {
    this.newest ??= new Map();
    this.root.dataset.times = this.times.value;
    this.root.style.setProperty("--gutter", `${WIDTHS[this.times.value] ?? 0}ch`);
    this.fold.setAttribute("aria-pressed", String(this.folding));
  }

  // ---- the address of the page, and what the person does

  #toAddress() {
    const url = new URL(location.href);
    const set = (name, value) => (value ? url.searchParams.set(name, value) : url.searchParams.delete(name));
    set("q", this.search.value);
    set("regex", this.search.value && this.marks.pattern ? "1" : "");
    set("in", this.search.value && this.finder.open ? "all" : "");
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  #fromAddress() {
    const asked = new URLSearchParams(location.search);
    const text = (asked.get("q") ?? "").slice(0, 200);
    if (!text) return;
    this.search.value = text;
    this.marks.pattern = asked.get("regex") === "1";
    this.marks.look();
    if (asked.get("in") === "all") this.finder.begin(true);
  }

  #listen() {
    this.follow.addEventListener("click", () => (this.following ? this.pause() : this.resume()));
    this.more.addEventListener("click", () => this.resume());
    this.end.addEventListener("click", () => this.resume());
    this.wrap.addEventListener("click", () => {
      this.#wrapped(!this.root.classList.contains("wrapped"));
      choose("wrap", this.root.classList.contains("wrapped") ? "on" : "off");
    });
    this.#wrapped(chosen("wrap") === "on");
    this.fold.addEventListener("click", () => {
      this.folding = !this.folding;
      choose("fold", this.folding ? "on" : "off");
      this.#look();
      this.#refold();
    });
    this.times.addEventListener("change", () => {
      choose("times", this.times.value);
      this.#look();
      for (const row of this.rows) this.paint(row, row.hits);
    });
    this.body.addEventListener("pointerover", (event) => this.#pointed(event));
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

// The pieces of a line that are shown.
function pieces(text) {
  if (!SPECIAL.test(text)) return [{ text, style: PLAIN }];
  return new Ansi().read(text).filter((piece) => piece.text);
}

// The text as it is shown, without colours.
function plain(text) {
  return SPECIAL.test(text) ? pieces(text).map((piece) => piece.text).join("") : text;
}

// Whether row `a` belongs behind row `b`. The lines of one run stay in their order, whatever their times say.
function after(a, b) {
  if (a.run === b.run) return a.end > b.end;
  return a.at > b.at || (a.at === b.at && a.run > b.run);
}
