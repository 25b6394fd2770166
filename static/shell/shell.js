// A terminal on a replica. The host keeps the shell: after a reload, another network or a restart of the console this
// page finds the same shell with its screen. The address of the page has the key of the shell.

import { FitAddon } from "../npm/xterm-fit/lib/addon-fit.mjs";
import { Terminal } from "../npm/xterm/lib/xterm.mjs";
import { Wire } from "../wire.js";
import { Replay } from "./replay.js";
import { Typed, randomKey } from "./typed.js";

const ACK_STEP = 32 * 1024;
const OLD_MS = 30_000; // keys that waited so long for the connection are sent only when the person says so
const THEME = { background: "#0d1117", foreground: "#e6edf3", cursor: "#7db3ff", selectionBackground: "#33507a" };

class ShellPage {
  constructor(root) {
    this.path = root.dataset.shells;
    this.run = root.dataset.run;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    const font = getComputedStyle(root).getPropertyValue("--mono");
    const look = { fontFamily: font, fontSize: 14, lineHeight: 1.2, theme: THEME, cursorBlink: true };
    this.terminal = new Terminal({ ...look, scrollback: 20_000 });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.open(this.screen);
    this.replay = new Replay(this.terminal);
    this.encoder = new TextEncoder();
    this.terminal.attachCustomKeyEventHandler((event) => this.#forTerminal(event));
    this.terminal.onData((text) => this.#type(this.encoder.encode(text)));
    this.terminal.onBinary((text) => this.#type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.terminal.onResize(({ cols, rows }) => this.ready && this.wire.send({ resize: [cols, rows] }));
    new ResizeObserver(() => this.fit.fit()).observe(this.screen);
    this.again.addEventListener("click", () => this.open(randomKey()));
    this.end.addEventListener("click", () => this.wire.send({ end: true }));
    this.sendwaiting.addEventListener("click", () => this.#decide(true));
    this.dropwaiting.addEventListener("click", () => this.#decide(false));
    window.addEventListener("pagehide", () => this.typed.store());
    window.addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
    this.open(new URLSearchParams(location.search).get("shell") ?? randomKey());
  }

  // Open the shell with this key, or a new one that gets it.
  open(key) {
    const address = new URL(location.href);
    address.searchParams.set("shell", key);
    history.replaceState(null, "", address);
    this.typed = new Typed(key);
    this.received = null; // the offset up to which the terminal has got the output
    this.over = this.wasReady = false;
    this.again.hidden = true;
    this.end.hidden = false;
    this.terminal.reset();
    this.#disconnected();
    this.#say("Connecting…");
    this.terminal.focus();
    const watch = new URLSearchParams(location.search).has("watch") ? "&watch=1" : "";
    this.wire?.end();
    this.wire = new Wire(`${this.path}${key}?run=${encodeURIComponent(this.run)}${watch}`, {
      opened: () => this.#opened(),
      text: (message) => this.#heard(message),
      bytes: (data) => this.#show(data),
      stale: (since) => this.#stale(since),
      heard: () => this.#inContact(),
      closed: (how) => this.#closed(how),
    });
  }

  #opened() {
    this.#disconnected();
    this.fit.fit();
    this.reason = "";
    this.wire.send({ resize: [this.terminal.cols, this.terminal.rows], client: this.typed.client, from: this.received });
  }

  // Programs need Tab and Escape, so another key leads a person without a mouse out of the terminal.
  #forTerminal(event) {
    const leaves = event.key === "F6" && event.shiftKey;
    if (leaves && event.type === "keydown") {
      event.preventDefault();
      this.leave.focus();
    }
    return !leaves && (!this.over || event.key !== "Tab"); // a terminal that is over has no use for Tab
  }

  #heard(message) {
    if (message.opening) this.#say(`Opening a shell as ${message.opening}…`);
    if (message.ready) this.#isReady(message.ready);
    if (message.took !== undefined) this.typed.took(message.took);
    if (message.lost !== undefined) this.#lost(message.lost, message.modes);
    if (Array.isArray(message.viewers)) this.#showPeople(message.viewers);
    if (message.end !== undefined) this.ended = message.end;
    if (message.closed) this.reason = message.closed;
    this.#showWaiting();
  }

  #isReady({ at, end, lost, modes, taken }) {
    this.ready = true;
    this.socket = this.wire.socket;
    this.acked = this.shown = 0;
    if (lost && this.received !== null) this.terminal.reset();
    if (modes) this.terminal.write(this.encoder.encode(modes));
    // What this terminal has never shown is still old, if it was printed before somebody asked for it.
    this.replay.begin(this.received === null || lost ? end - at : 0);
    this.received = at;
    this.#say("Connected", "good");
    this.typed.connected(taken);
    this.#flow();
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
    this.#say(`No contact since ${new Date(since).toLocaleTimeString("en-GB")}. What you type waits.`, "bad");
    this.#showWaiting();
  }

  // The host has said on this very socket that the shell is open. A new one was not greeted yet.
  #isOpen() {
    return this.ready && this.socket === this.wire.socket;
  }

  #inContact() {
    if (!this.#isOpen()) return;
    this.#say("Connected", "good");
    this.#flow();
  }

  #lost(at, modes) {
    this.received = at;
    this.terminal.write("\x1bc\x1b[2m[Output was printed faster than it could be shown here. A part is left out.]\x1b[0m\r\n");
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
    if (this.over) return;
    if (!this.typed.type(bytes)) this.#say("Too much was typed or pasted while it could not be sent.", "warn");
    this.#showWaiting();
  }

  #disconnected() {
    this.ready = this.asked = false;
    this.typed.hold();
    this.people.textContent = "";
  }

  #closed({ final, reason, code }) {
    const why = this.ended || this.reason || reason;
    this.#disconnected();
    if (final || code === 1000) this.#over(why || "The shell has ended.");
    else this.#say(`${why || "The connection was lost."} Reconnecting…`, "warn");
    this.#showWaiting();
  }

  #over(why) {
    this.over = true;
    this.ended = "";
    this.wire.end();
    this.typed.forgetUnsent();
    this.#say(why, "warn");
    this.terminal.write("\r\n\x1b[2m[closed]\x1b[0m\r\n");
    this.again.hidden = false;
    this.end.hidden = true;
  }

  #showWaiting() {
    const count = this.typed.send ? 0 : this.typed.unsent;
    this.waiting.hidden = !count || this.over;
    this.waitingtext.textContent = count === 1 ? "1 typed byte waits." : `${count} typed bytes wait.`;
    for (const button of [this.sendwaiting, this.dropwaiting]) button.hidden = !this.asked;
  }

  #showPeople(viewers) {
    const names = viewers.filter(({ name }) => name).map(({ name, types }) => (types ? name : `${name} (watches)`));
    this.people.textContent = names.length > 1 ? `Here now: ${names.join(", ")}` : "";
  }

  #say(text, tone = "") {
    this.state.textContent = text;
    this.state.dataset.tone = tone;
  }
}

for (const root of document.querySelectorAll("[data-shells]")) new ShellPage(root);
