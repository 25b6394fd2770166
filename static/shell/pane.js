// One terminal on a replica. The host keeps the shell: after a reload, another network or a restart of the console the
// page finds the same shell with its screen, by its key.

import { FitAddon } from "../npm/xterm-fit/lib/addon-fit.mjs";
import { Unicode11Addon } from "../npm/xterm-unicode11/lib/addon-unicode11.mjs";
import { Terminal } from "../npm/xterm/lib/xterm.mjs";
import { clockInZone } from "../frame/times.js";
import { say, sayMany } from "../texts.js";
import { Wire } from "../wire.js";
import { addressOf, take } from "./early.js";
import { Find } from "./find.js";
import { FontSize } from "./font.js";
import { copy, meaning, systemOf } from "./keys.js";
import { followLinks } from "./links.js";
import { cleaned } from "./paste.js";
import { Replay } from "./replay.js";
import { THEME } from "./theme.js";
import { TouchKeys } from "./touch.js";
import { Typed } from "./typed.js";

const ACK_STEP = 32 * 1024;
const OLD_MS = 30_000; // keys that waited so long for the connection are sent only when the person says so
const SEEN_PX = 60; // a terminal of which less is in sight counts as out of sight
const SYSTEM = systemOf(navigator);

export class Pane {
  // `root`: the element, already on the page. `page`: what all terminals of the page share (shell.js).
  constructor(root, page, { key, run, watch }) {
    Object.assign(this, { root, page, run, watch });
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    const font = getComputedStyle(root).getPropertyValue("--mono");
    this.font = new FontSize(this, (size) => this.#resizeLetters(size));
    const look = { fontFamily: font, fontSize: this.font.size, lineHeight: 1.2, theme: THEME, cursorBlink: true };
    this.terminal = new Terminal({ ...look, scrollback: 20_000, allowProposedApi: true });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.loadAddon(new Unicode11Addon());
    this.terminal.unicode.activeVersion = "11";
    this.terminal.open(this.mount);
    followLinks(this.terminal, this.address, page.linkQuestion);
    this.found = new Find(this.terminal, this.find);
    this.replay = new Replay(this.terminal);
    this.touch = new TouchKeys(this.keys, this.terminal, () => this.#pasteByTouch());
    this.encoder = new TextEncoder();
    this.#listen();
    this.open(key);
  }

  #listen() {
    this.terminal.attachCustomKeyEventHandler((event) => this.#forTerminal(event));
    this.terminal.onData((text) => this.#type(this.encoder.encode(this.touch.typed(text))));
    this.terminal.onBinary((text) => this.#type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.terminal.onResize(() => this.#mayResize() && this.#tellSize());
    this.mount.addEventListener("paste", (event) => this.#paste(event), true);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.mount);
    this.again.addEventListener("click", () => this.page.renew(this));
    this.end.addEventListener("click", () => this.wire.send({ end: true }));
    this.share.addEventListener("click", () => this.wire.send({ share: !this.shared }));
    this.look.addEventListener("click", () => this.found.show());
    this.take.addEventListener("click", () => this.#takeUp());
    this.sendwaiting.addEventListener("click", () => this.#decide(true));
    this.dropwaiting.addEventListener("click", () => this.#decide(false));
  }

  // Open the shell with this key, or a new one that gets it.
  open(key) {
    this.key = key;
    this.typed = new Typed(key);
    this.received = null; // the offset up to which the terminal has got the output
    this.over = this.wasReady = this.foreign = false;
    this.types = !this.watch;
    this.mayShare = false;
    this.#showShared(false);
    this.again.hidden = true;
    this.terminal.reset();
    this.#disconnected();
    this.#showRight();
    this.#say(say("Connecting…"));
    const address = addressOf(this.page.path, this);
    this.wire?.end();
    const hooks = {
      opened: () => this.#opened(),
      text: (message) => this.#heard(message),
      bytes: (data) => this.#show(data),
      stale: (since) => this.#stale(since),
      heard: () => this.#inContact(),
      closed: (how) => this.#closed(how),
    };
    this.early = take(address);
    this.wire = new Wire(address, hooks, this.early ?? {});
  }

  // Keep for the next page of this tab what it needs to go on.
  store() {
    this.typed.store(this.foreign ? null : [this.terminal.cols, this.terminal.rows]);
  }

  // Leave the shell; its host keeps it.
  leave() {
    this.store();
    this.wire.end();
    this.observer.disconnect();
    this.font.end();
    this.terminal.dispose();
    this.root.remove();
  }

  // Fill the place that there is, unless somebody else, who typed last, has another one.
  resize() {
    if (this.mount.offsetWidth && this.types && !this.foreign) this.fit.fit();
  }

  #resizeLetters(size) {
    this.terminal.options.fontSize = size;
    this.resize();
  }

  // On a phone a note above the page pushes the terminal out of sight, where nothing of it is drawn. Keys go to it.
  reveal() {
    const { top, bottom } = this.screen.getBoundingClientRect();
    if (top + SEEN_PX > innerHeight || bottom < SEEN_PX) this.screen.scrollIntoView({ block: "nearest" });
  }

  #mayResize() {
    return this.ready && this.types && !this.obeying;
  }

  #opened() {
    this.#disconnected();
    this.resize();
    this.reason = "";
    // Another socket than the early one, which has failed, was told nothing.
    const size = this.early?.socket === this.wire.socket ? this.early.size : null;
    this.early = null;
    if (size) this.toldSize = String(size); // and the screen was asked for, before this terminal was here
    else this.#tellSize({ client: this.typed.client, from: this.received });
  }

  // `toldSize` is the size of the place that this page has, as the host has heard it.
  #tellSize(more = {}) {
    const size = [this.terminal.cols, this.terminal.rows];
    this.toldSize = this.foreign ? "" : String(size);
    this.wire.send({ resize: size, ...more });
  }

  // Programs need Tab and Escape, so another key leads a person without a mouse out of the terminal.
  #forTerminal(event) {
    const isDown = event.type === "keydown";
    if (event.key === "F6" && event.shiftKey) {
      event.preventDefault();
      if (isDown) this.page.leaveTerminal();
      return false;
    }
    const what = meaning(event, SYSTEM, this.terminal.hasSelection());
    if (what) {
      if (what === "copy" || what === "find") event.preventDefault();
      if (isDown && what === "copy") this.#copy();
      if (isDown && what === "find") this.found.show();
      return false;
    }
    if (isDown && !this.types && event.key.length === 1 && !event.ctrlKey && !event.metaKey) this.#refuse();
    return !this.over || event.key !== "Tab"; // a terminal that is over has no use for Tab
  }

  #copy() {
    const text = this.terminal.getSelection();
    if (!text) return;
    copy(text);
    // The next Ctrl+C is the program's again.
    if (SYSTEM === "windows") this.terminal.clearSelection();
  }

  #paste(event) {
    event.preventDefault();
    event.stopPropagation();
    return this.#pasteText(cleaned(event.clipboardData?.getData("text/plain") ?? ""));
  }

  // Only pages that came over https, or from this machine, have a clipboard, and the person may refuse it.
  async #pasteByTouch() {
    try {
      await this.#pasteText(cleaned(await navigator.clipboard.readText()));
    } catch {
      this.#say(say("The browser does not give the clipboard to this page."), "warn");
    }
  }

  async #pasteText(text) {
    if (!this.types) return this.#refuse();
    if (!text || this.over) return;
    if (await this.page.pasteQuestion.allows(text, this.terminal.modes.bracketedPasteMode)) this.terminal.paste(text);
    this.terminal.focus();
  }

  #heard(message) {
    if (message.opening) this.#say(say("Opening a shell as {who}…", { who: message.opening }));
    if (message.ready) this.#isReady(message.ready);
    if (message.took !== undefined) this.typed.took(message.took);
    if (message.lost !== undefined) this.#lost(message.lost, message.modes);
    if (Array.isArray(message.viewers)) this.#showPeople(message.viewers);
    if (Array.isArray(message.size)) this.#sized(message.size);
    if (message.recording !== undefined) this.#showRecording(message.recording);
    if (message.shared !== undefined) this.#showShared(message.shared);
    if (message.end !== undefined) this.ended = message.end;
    if (message.closed) this.reason = message.closed;
    this.#showWaiting();
  }

  #isReady({ at, end, lost, modes, taken, types, size, recording, shared, mayShare }) {
    this.ready = true;
    this.types = types ?? this.types;
    this.#showRecording(recording);
    this.mayShare = mayShare === true;
    this.#showShared(shared === true);
    this.#showRight();
    if (Array.isArray(size)) this.#sized(size);
    this.socket = this.wire.socket;
    this.acked = this.shown = 0;
    if (lost && this.received !== null) this.terminal.reset();
    if (modes) this.terminal.write(this.encoder.encode(modes));
    // What this terminal has never shown is still old, if it was printed before somebody asked for it.
    this.replay.begin(this.received === null || lost ? end - at : 0);
    this.received = at;
    this.#say(say("Connected"), "good");
    if (this.root.contains(document.activeElement)) this.reveal();
    this.typed.connected(taken);
    this.#flow();
  }

  // The size of the shell is that of whoever typed last. If that is this page, its place may have changed since the host
  // was told.
  #sized([cols, rows]) {
    if (!(cols > 0 && rows > 0)) return;
    const isHere = cols === this.terminal.cols && rows === this.terminal.rows;
    this.foreign = !this.types || (!isHere && this.toldSize !== String([cols, rows]));
    this.screen.dataset.size = this.foreign ? "other" : "own";
    this.obeying = true;
    this.terminal.resize(cols, rows);
    this.obeying = false;
    if (!isHere) this.resize();
  }

  // Nobody wants an old `rm` to arrive: what was never sent, and is a line or more, or old, waits for the person.
  #flow() {
    const isOld = this.typed.unsent && Date.now() - this.typed.since > OLD_MS;
    const isLine = this.wasReady && this.typed.unsentBytes().some((byte) => byte === 13 || byte === 10);
    this.wasReady = true;
    this.asked = isOld || isLine;
    if (!this.asked) this.typed.flow((piece) => this.wire.send(piece));
    this.#showWaiting();
  }

  #decide(send) {
    if (!send) this.typed.forgetUnsent();
    this.asked = false;
    if (this.#isOpen()) this.typed.flow((piece) => this.wire.send(piece));
    this.#showWaiting();
    this.terminal.focus();
  }

  // The path may be cut. What is typed now waits.
  #stale(since) {
    this.typed.hold();
    const time = clockInZone(since);
    this.#say(say("No contact since {time}. What you type waits.", { time }), "bad");
    this.#showWaiting();
  }

  // The host has said on this very socket that the shell is open. A new one was not greeted yet.
  #isOpen() {
    return this.ready && this.socket === this.wire.socket;
  }

  #inContact() {
    if (!this.#isOpen()) return;
    this.#say(say("Connected"), "good");
    this.#flow();
  }

  #lost(at, modes) {
    this.received = at;
    const words = say("Output was printed faster than it could be shown here. A part is left out.");
    this.terminal.write(`\x1bc\x1b[2m[${words}]\x1b[0m\r\n`);
    if (modes) this.terminal.write(this.encoder.encode(modes));
  }

  #show(data) {
    const socket = this.wire.socket;
    this.received += data.length;
    // Acknowledge bytes when they are on the screen: a slow terminal makes the program wait.
    this.replay.write(data, (size) => {
      if (socket !== this.wire.socket) return;
      this.shown += size;
      if (this.shown - this.acked < ACK_STEP) return;
      this.acked = this.shown;
      this.wire.send({ ack: this.shown });
    });
  }

  #type(bytes) {
    if (this.over || !this.types) return;
    if (this.foreign) {
      this.foreign = false;
      this.screen.dataset.size = "own";
      this.resize();
    }
    if (!this.typed.type(bytes)) this.#say(say("Too much was typed or pasted while it could not be sent."), "warn");
    this.#showWaiting();
  }

  // A person who only watches has typed: point at the words that say why nothing happens.
  #refuse() {
    this.watching.animate([{ opacity: 0.1 }, { opacity: 1 }], 400);
  }

  #takeUp() {
    this.watch = false;
    this.page.changed();
    this.open(this.key);
    this.terminal.focus();
  }

  #showRight() {
    this.watching.hidden = this.types;
    this.end.hidden = this.keys.hidden = this.over || !this.types;
    this.take.hidden = !this.page.mayType;
    this.watchingtext.textContent = this.page.mayType
      ? say("You only watch this shell. Keys do nothing here.")
      : say("You only watch this shell. Keys do nothing here: whoever submitted the job, and admins of the project, type.");
  }

  #showShared(shared) {
    this.shared = shared;
    this.isshared.hidden = !shared || this.over;
    this.share.hidden = !this.mayShare || this.over;
    this.share.textContent = shared ? say("Stop sharing") : say("Share");
    this.share.setAttribute("aria-pressed", String(shared));
  }

  // `recording`: true, false, or why output cannot be recorded at the moment.
  #showRecording(recording) {
    const why = typeof recording === "string" ? recording : "";
    this.recorded.hidden = recording !== true;
    this.unrecorded.hidden = !why;
    this.unrecorded.textContent = why && say("Output is not recorded at the moment: {why}", { why });
  }

  #disconnected() {
    this.ready = this.asked = false;
    this.typed.hold();
    this.people.textContent = "";
  }

  #closed({ final, reason, code }) {
    const why = this.ended || this.reason || reason;
    this.#disconnected();
    if (final || code === 1000) this.#over(why || say("The shell has ended."));
    else this.#say(`${why || say("The connection was lost.")} ${say("Reconnecting…")}`, "warn");
    this.#showWaiting();
  }

  #over(why) {
    this.over = true;
    this.ended = "";
    this.wire.end();
    this.typed.forgetUnsent();
    this.#say(why, "warn");
    this.terminal.write(`\r\n\x1b[2m[${say("closed")}]\x1b[0m\r\n`);
    this.again.hidden = !this.page.mayType;
    this.end.hidden = this.keys.hidden = this.share.hidden = this.isshared.hidden = true;
  }

  #showWaiting() {
    const count = this.typed.send ? 0 : this.typed.unsent;
    this.waiting.hidden = !count || this.over;
    this.waitingtext.textContent = sayMany(count, "{number} typed byte waits.", "{number} typed bytes wait.");
    for (const button of [this.sendwaiting, this.dropwaiting]) button.hidden = !this.asked;
  }

  #showPeople(viewers) {
    const named = viewers.filter(({ name }) => name);
    const words = named.map(({ name, types }) => (types ? say("{name} (types)", { name }) : say("{name} (watches)", { name })));
    this.people.textContent = named.length > 1 ? say("Here now: {names}", { names: words.join(", ") }) : "";
  }

  #say(text, tone = "") {
    this.state.textContent = text;
    this.state.dataset.tone = tone;
  }
}
