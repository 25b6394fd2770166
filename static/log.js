// The log viewer: a window of rows over a log of any size. At the live end it follows a socket. Elsewhere it stands
// still, and fetches rows above and below when the person scrolls there. It never holds more than MAX_ROWS rows.

import { PLAIN } from "./log/ansi.js";
import { Found } from "./log/found.js";
import { Gutter } from "./log/gutter.js";
import { Lines, Row } from "./log/lines.js";
import { Link } from "./log/link.js";
import { Marks } from "./log/marks.js";
import { paintRow } from "./log/paint.js";
import { Runs } from "./log/runs.js";
import { Wire, dot } from "./wire.js";

const MAX_ROWS = 4000;
const TAIL = 128 * 1024; // bytes that are shown at first
const STEP = 128 * 1024; // bytes of one fetch
const NEAR = 256 * 1024; // closer to the end than this, the socket continues instead of jumping
const ACK_STEP = 32 * 1024; // far below what the server sends ahead, so a quiet log needs no message back
const HIDDEN_MS = 5000;
const COUNTING_MS = 300;
const EDGE = 400; // pixels from the edge at which more is fetched

const number = new Intl.NumberFormat("en");
const bytes = (n) => `${number.format(n)} byte${n === 1 ? "" : "s"}`;

export class LogView {
  constructor(root) {
    this.root = root;
    this.api = `/api/v1/jobs/${root.dataset.job}`;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    this.rows = [];
    this.marks = new Marks(this);
    this.choice = new Runs(this);
    this.finder = new Found(this);
    this.gutter = new Gutter(this);
    this.link = new Link(this);
    this.#listen();
    this.show(root.dataset.replica, root.dataset.run || new URLSearchParams(location.search).get("run") || "", true);
    this.link.open();
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
    this.#clear({ run, offset: 0 });
    this.#follow(true);
    this.#say("Opening…");
    const query = run ? `?run=${encodeURIComponent(run)}` : "";
    this.wire = new Wire(`/ws/jobs/${this.root.dataset.job}/log/${replica}${query}`, {
      opened: () => this.#opened(),
      text: (document) => this.#queue(document),
      bytes: (data) => this.#queue(data),
      closed: ({ final, reason }) => {
        dot(final ? "off" : "lost");
        this.#say(final ? reason : "Reconnecting…", final ? "bad" : "warn");
      },
    });
    this.choice.look();
    if (!first) this.link.moved();
  }

  // Show the name of the replica: in its tab, the title and the labels for screen readers.
  #name() {
    for (const tab of document.querySelectorAll("[data-log-tab]")) {
      if (tab.dataset.logTab === this.replica) tab.setAttribute("aria-current", "true");
      else tab.removeAttribute("aria-current");
    }
    for (const name of document.querySelectorAll("[data-log-name]")) name.textContent = this.replica;
    this.bar.setAttribute("aria-label", `Log of ${this.replica}`);
    this.body.setAttribute("aria-label", `Output of ${this.replica}`);
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

  #queue(item) {
    this.queue.push(item);
    if (this.painting) return;
    this.painting = true;
    requestAnimationFrame(() => this.#drain());
  }

  #drain() {
    this.painting = false;
    for (const item of this.queue.splice(0)) {
      if (!(item instanceof Uint8Array)) this.#header(item);
      else {
        this.received += item.length;
        if (!this.live || this.awaiting) continue;
        // This may begin other `lines`, so it comes first.
        const data = this.#wholeLines(item);
        this.#below(this.lines.push(data));
      }
    }
    if (this.live && !this.awaiting) this.#moveBottom();
    this.#trim("top");
    if (this.following) this.#toEnd();
    if (this.received - this.acked >= ACK_STEP) this.#ack();
    this.#showStatus();
  }

  // Begin the window with a whole line if there is one. The part before it is fetched when the person scrolls up.
  #wholeLines(data) {
    if (this.rows.length || !this.lines.continued) return data;
    const newline = data.indexOf(10);
    if (newline < 0 || newline + 1 === data.length) return data;
    const { run, offset, feeds } = this.lines;
    this.lines = new Lines(run, offset + newline + 1, false, feeds + 1);
    this.top = { run, offset: offset + newline + 1, feeds: feeds + 1 };
    return data.subarray(newline + 1);
  }

  #ack() {
    this.acked = this.received;
    this.wire.send({ ack: this.received });
  }

  #header(header) {
    if (header.waiting) return this.#say(header.waiting);
    if (header.closed) return undefined;
    if (header.times) return this.gutter.add(header.run, header.times);
    if (header.gap) {
      if (this.live && !this.awaiting) this.#gapBelow(header);
      return undefined;
    }
    const before = this.status;
    this.status = { ...(before?.run === header.run ? before : {}), ...header };
    if (header.jump && header.id === this.asked) {
      this.awaiting = false;
      const goesOn = header.run === this.bottom.run && header.at === this.bottom.offset && this.rows.length;
      if (this.live && !goesOn) this.#clear({ run: header.run, offset: header.at });
    }
    if (header.restart && this.live && !this.awaiting) this.#runBegins(header);
    if (before?.newest_run !== header.newest_run) this.choice.look();
    return undefined;
  }

  #runBegins(header) {
    this.#below(this.lines.finish());
    const text = `Started again: attempt ${header.attempt}, start ${header.number + 1}, on ${header.host}`;
    this.#below([note(header.run, 0, text, "restart")]);
    this.lines = new Lines(header.run, header.at);
    this.gutter.place(header.run, header.at, 0, this.raw);
  }

  #gapBelow({ run, gap, at, to }) {
    this.#below(this.lines.finish());
    this.#below([note(run, at, gapText(at, to, gap), "gap")]);
    this.lines.skipTo(to);
  }

  // ---- the rows

  #clear({ run, offset }) {
    this.rows = [];
    this.body.replaceChildren();
    this.top = { run, offset, feeds: 0 };
    this.bottom = { run, offset };
    this.lines = new Lines(run, offset, offset > 0);
    this.marks.forget();
    this.gutter.forget();
    if (run) this.gutter.place(run, offset, 0, this.raw);
  }

  #below(rows) {
    const fresh = document.createDocumentFragment();
    for (const row of rows) {
      if (row.node) this.paint(row);
      else {
        row.node = document.createElement("div");
        this.paint(row);
        fresh.append(row.node);
        this.rows.push(row);
      }
    }
    this.body.append(fresh);
    if (rows.length) this.marks.changed(rows);
  }

  #above(rows) {
    const fresh = document.createDocumentFragment();
    for (const row of rows) {
      row.node = document.createElement("div");
      this.paint(row);
      fresh.append(row.node);
    }
    const before = this.body.scrollHeight;
    this.body.prepend(fresh);
    this.rows.unshift(...rows);
    this.body.scrollTop += this.body.scrollHeight - before;
    if (rows.length) this.marks.changed(rows);
  }

  paint(row, hits = []) {
    paintRow(row, hits);
    this.gutter.show(row);
    this.link.show(row);
  }

  #trim(side) {
    let extra = this.rows.length - MAX_ROWS;
    if (extra <= 0) return;
    const gone = side === "top" ? this.rows.splice(0, extra) : this.rows.splice(-extra);
    for (const row of gone) row.node.remove();
    if (side === "top") {
      const { run, offset, feed } = this.rows[0];
      this.top = { run, offset, feeds: feed };
    } else {
      const [first] = gone;
      this.bottom = { run: first.run, offset: first.offset };
      this.lines = new Lines(first.run, first.offset, first.continued, first.feed);
      this.#still();
    }
    this.marks.dropped(gone);
  }

  #moveBottom() {
    this.bottom = { run: this.lines.run, offset: this.lines.offset };
  }

  // ---- moving

  #follow(on) {
    this.following = on;
    if (on) this.live = true;
    this.follow.setAttribute("aria-pressed", String(on));
    this.follow.textContent = on ? "Pause" : "Follow";
    this.more.hidden = on;
  }

  // Leave the live end: the socket sends only sizes from now on.
  #still() {
    this.#follow(false);
    this.live = false;
    this.wire?.send({ pause: true });
  }

  pause() {
    this.#still();
    this.#showStatus();
  }

  // Go to the newest line: continue where the window ends if that is near, else jump.
  resume() {
    const near = this.status && this.rows.length && this.bottom.run === this.status.run;
    const behind = near ? this.status.stored - this.bottom.offset : Infinity;
    this.#follow(true);
    this.#ask(behind > NEAR ? { tail: TAIL } : { run: this.bottom.run, from: this.bottom.offset });
    this.wire.send({ pause: false });
    this.#toEnd();
  }

  #toEnd() {
    this.body.scrollTop = this.body.scrollHeight;
  }

  async goto(where, run = this.top.run || this.status?.run) {
    if (!run) return;
    this.#still();
    const piece = await this.#fetch(run, { ...where, limit: STEP });
    if (!piece) return;
    this.#clear({ run, offset: piece.from });
    this.#below(this.#parsed(piece, this.lines));
    this.#moveBottom();
    this.gutter.fetchTimes(run, piece.from, piece.to, this.raw);
    this.body.scrollTop = 0;
    this.#showStatus();
  }

  async #earlier() {
    if (this.fetching || !this.top.offset || !this.top.run) return;
    const { run, offset, feeds } = this.top;
    const piece = await this.#fetch(run, { from: Math.max(0, offset - STEP), to: offset });
    if (!piece || this.top.offset !== offset || this.top.run !== run) return;
    const newline = piece.from > 0 && piece.gaps.length === 0 ? piece.data.indexOf(10) : -1;
    if (newline >= 0 && newline + 1 < piece.data.length) {
      piece.data = piece.data.subarray(newline + 1);
      piece.from += newline + 1;
    }
    const lines = new Lines(run, piece.from, piece.from > 0 && newline < 0, feeds - feedsIn(piece.data));
    this.top = { run, offset: piece.from, feeds: lines.feeds };
    const rows = this.#parsed(piece, lines);
    rows.push(...lines.finish().filter((row) => !rows.includes(row)));
    this.gutter.fetchTimes(run, piece.from, offset, this.raw);
    this.#above(rows);
    this.#trim("bottom");
    this.#showStatus();
  }

  async #later() {
    if (this.fetching || this.live || !this.status) return;
    const { run, offset } = this.bottom;
    if (run === this.status.run && offset >= this.status.stored - NEAR) return this.resume();
    const piece = await this.#fetch(run, { from: offset, to: offset + STEP });
    if (!piece || this.bottom.offset !== offset || this.live) return undefined;
    if (piece.to === offset) return this.resume();
    this.#below(this.#parsed(piece, this.lines));
    this.#moveBottom();
    this.gutter.fetchTimes(run, piece.from, piece.to, this.raw);
    this.#trim("top");
    return this.#showStatus();
  }

  // Put the bytes and gaps through `lines`, in their order. Returns the rows.
  #parsed(piece, lines) {
    const rows = new Set();
    const add = (some) => some.forEach((row) => rows.add(row));
    let at = piece.from;
    let taken = 0;
    for (const gap of [...piece.gaps, { from: piece.to, to: piece.to }]) {
      const size = Math.max(0, Math.min(gap.from, piece.to) - at);
      add(lines.push(piece.data.subarray(taken, taken + size)));
      taken += size;
      at = Math.max(at, gap.to);
      if (!gap.reason) break;
      add(lines.finish());
      add([note(lines.run, gap.from, gapText(gap.from, gap.to, gap.reason), "gap")]);
      lines.skipTo(gap.to);
    }
    return [...rows];
  }

  // Where this line of the run begins: {run, line, offset}.
  placeOf(line, run = "") {
    return this.#count({ line, ...(run ? { run } : {}) });
  }

  // The number of the line that holds this byte.
  async lineAt(run, offset) {
    return (await this.#count({ run, from: offset }))?.line;
  }

  // Ask about lines. Old logs are counted first, which may take a while.
  async #count(what) {
    for (;;) {
      try {
        const answer = await fetch(`${this.raw}/lines?${new URLSearchParams(what)}`);
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const found = await answer.json();
        if (!found.counting) return found.run ? found : null;
      } catch (problem) {
        this.#say(`The line could not be found: ${problem.message}`, "bad");
        return null;
      }
      this.#say("Counting lines…");
      await new Promise((done) => setTimeout(done, COUNTING_MS));
    }
  }

  // The format of times has changed: the socket sends times if they are shown.
  timesWanted() {
    if (!this.bottom) return;
    this.wire.send({ times: Boolean(this.gutter.format) });
    const { run, offset } = this.top;
    if (run && run === this.bottom.run) this.gutter.fetchTimes(run, offset, this.bottom.offset, this.raw);
  }

  async #fetch(run, range) {
    this.fetching = true;
    try {
      const answer = await fetch(`${this.raw}?${new URLSearchParams({ run, ...range })}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const header = (name) => answer.headers.get(`Trainyard-Log-${name}`);
      const data = new Uint8Array(await answer.arrayBuffer());
      const gaps = JSON.parse(header("Gaps") ?? "[]");
      return { from: Number(header("From")), to: Number(header("To")), gaps, data };
    } catch (problem) {
      this.#say(`More of the log could not be fetched: ${problem.message}`, "bad");
      return null;
    } finally {
      this.fetching = false;
    }
  }

  // ---- the status line

  #say(text, tone = "") {
    this.state.textContent = text;
    this.state.dataset.tone = tone;
  }

  #showStatus() {
    const status = this.status;
    if (!status) return;
    const unread = status.run === this.bottom.run ? status.size - this.bottom.offset : 0;
    this.more.textContent = unread > 0 ? `↓ ${bytes(unread)} further down` : "↓ To the end";
    this.download.href = `${this.raw}?run=${encodeURIComponent(this.bottom.run || status.run)}`;
    if (!status.complete) {
      const behind = status.size - status.stored;
      if (status.held) this.#say(status.held, "warn");
      else this.#say(bytes(status.size) + (behind > 0 ? `, ${bytes(behind)} of them still on the host` : ""));
    } else if (status.matches) {
      const digest = status.digest_here.replace(/^(sha256|blocks8m):/, "");
      this.#say(`Complete: ${bytes(status.size)}, SHA-256 ${digest} equal to the host's`, "good");
    } else if (status.matches === false) {
      this.#say(`${bytes(status.size)}, but the SHA-256 is not the host's: the log differs`, "bad");
    } else {
      this.#say(`Ended: ${bytes(status.size)}`);
    }
    this.empty.hidden = this.rows.length > 0 || this.bottom.offset > 0;
  }

  // ---- what the person does

  #listen() {
    this.follow.addEventListener("click", () => (this.following ? this.pause() : this.resume()));
    this.more.addEventListener("click", () => this.resume());
    this.start.addEventListener("click", () => this.goto({ from: 0 }));
    this.end.addEventListener("click", () => this.resume());
    this.time.addEventListener("change", () => this.#toTime());
    this.wrap.addEventListener("click", () => this.#wrapped(!this.root.classList.contains("wrapped")));
    this.#wrapped(localStorage.getItem("log.wrap") === "on");
    this.body.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.root.addEventListener("keydown", (event) => this.#escaped(event));
    new ResizeObserver(() => this.following && this.#toEnd()).observe(this.body);
    document.addEventListener("visibilitychange", () => this.#visible());
  }

  #toTime() {
    // Times on our pages are in UTC, so this one is too.
    const when = Date.parse(`${this.time.value}Z`) / 1000;
    if (when > 0) this.goto({ at: when });
  }

  // Esc closes the list of lines found, then unpicks lines.
  #escaped(event) {
    if (event.key !== "Escape") return;
    if (this.finder.open) this.finder.close();
    else if (!this.link.unpick()) return;
    event.preventDefault();
    this.body.focus();
  }

  // Scroll the log, not the page around it, so that the row is in the middle.
  center(row) {
    const { top, height } = row.node.getBoundingClientRect();
    this.body.scrollTop += top + height / 2 - this.body.getBoundingClientRect().top - this.body.clientHeight / 2;
  }

  // The rows get other heights. What was seen stays: the end while following, else the first row.
  #wrapped(on) {
    const { top } = this.body.getBoundingClientRect();
    const first = this.rows.find((row) => row.node.getBoundingClientRect().bottom > top);
    const was = first?.node.getBoundingClientRect().top;
    this.root.classList.toggle("wrapped", on);
    if (this.following) this.#toEnd();
    else if (first) this.body.scrollTop += first.node.getBoundingClientRect().top - was;
    this.wrap.setAttribute("aria-pressed", String(on));
    localStorage.setItem("log.wrap", on ? "on" : "off");
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.body;
    const up = scrollTop < (this.scrolledTo ?? 0);
    this.scrolledTo = scrollTop;
    this.root.classList.toggle("sideways", this.body.scrollLeft > 0);
    const below = scrollHeight - clientHeight - scrollTop;
    if (this.following && up && below > 40) this.pause();
    if (scrollTop < EDGE && up) this.#earlier();
    if (below < EDGE && !up && !this.following) this.#later();
  }

  // A hidden tab receives no bytes. When it is shown again, it continues from where it was.
  #visible() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.asleep = this.following;
        if (this.asleep) this.#still();
      }, HIDDEN_MS);
    } else if (this.asleep) {
      this.asleep = false;
      this.resume();
    }
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

function note(run, offset, text, kind) {
  const row = new Row(run, offset, false);
  row.kind = kind;
  row.pieces = [{ text, style: PLAIN }];
  return row;
}

function feedsIn(data) {
  let feeds = 0;
  for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) feeds += 1;
  return feeds;
}

function gapText(from, to, reason) {
  return `${bytes(to - from)} missing here (${number.format(from)} to ${number.format(to)}): ${reason}`;
}
