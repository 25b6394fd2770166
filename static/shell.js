// A terminal on a replica. Bytes go both ways unchanged. Each side acknowledges the bytes that it has processed, so that
// neither a flood of output nor a large paste fills a buffer.

import { FitAddon } from "./npm/xterm-fit/lib/addon-fit.mjs";
import { Terminal } from "./npm/xterm/lib/xterm.mjs";
import { Wire } from "./wire.js";

const ACK_STEP = 32 * 1024;
const PIECE = 16 * 1024;
const AHEAD = 192 * 1024; // bytes sent that the host has not acknowledged yet
const EARLY = 1000; // keys, or pieces of a paste, that wait until the shell is ready
const THEME = { background: "#0d1117", foreground: "#e6edf3", cursor: "#7db3ff", selectionBackground: "#33507a" };

class ShellPage {
  constructor(root) {
    this.path = root.dataset.shell;
    for (const part of root.querySelectorAll("[data-part]")) this[part.dataset.part] = part;
    const font = getComputedStyle(root).getPropertyValue("--mono");
    this.terminal = new Terminal({ fontFamily: font, fontSize: 14, lineHeight: 1.2, scrollback: 5000, theme: THEME, cursorBlink: true });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.open(this.screen);
    this.encoder = new TextEncoder();
    this.terminal.attachCustomKeyEventHandler((event) => this.#forTerminal(event));
    this.terminal.onData((text) => this.#type(this.encoder.encode(text)));
    this.terminal.onBinary((text) => this.#type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.terminal.onResize(({ cols, rows }) => this.#send({ resize: [cols, rows] }));
    new ResizeObserver(() => this.fit.fit()).observe(this.screen);
    this.again.addEventListener("click", () => this.open());
    this.open();
  }

  open() {
    this.again.hidden = true;
    this.ready = false;
    this.opening = true;
    this.reason = "";
    this.shown = this.acked = 0;
    this.typed = this.taken = 0;
    this.waiting = [];
    this.#say("Connecting…");
    this.terminal.focus();
    this.unsent = 0;
    this.since = "";
    this.wire?.end();
    const wire = new Wire(this.path, {
      opened: () => {
        this.fit.fit();
        this.#send({ resize: [this.terminal.cols, this.terminal.rows] });
      },
      text: (message) => this.#received(message),
      bytes: (data) => this.#show(data, wire),
      stale: (since) => {
        this.since = new Date(since).toLocaleTimeString("en-GB");
        this.#say(`No contact since ${this.since}. What you type is not sent.`, "bad");
      },
      heard: () => this.#backInContact(),
      closed: ({ reason }) => this.#closed(this.reason || reason),
    }, { once: true });
    this.wire = wire;
  }

  // Programs need Tab and Escape, so another key leads a person without a mouse out of the terminal.
  #forTerminal(event) {
    const leaves = event.key === "F6" && event.shiftKey;
    if (leaves && event.type === "keydown") {
      event.preventDefault();
      this.leave.focus();
    }
    return !leaves && (this.opening || event.key !== "Tab"); // a closed terminal has no use for Tab
  }

  #received(message) {
    if (message.opening) this.#say(`Opening a shell as ${message.opening}…`);
    if (message.ready) {
      this.ready = true;
      this.#say("Connected", "good");
      this.#pour();
    }
    if (message.ack !== undefined) {
      this.taken = message.ack;
      this.#pour();
    }
    if (message.closed) this.reason = message.closed;
  }

  #show(data, wire) {
    // Acknowledge bytes when they are on the screen: a slow terminal makes the program wait.
    this.terminal.write(data, () => {
      if (wire !== this.wire) return;
      this.shown += data.byteLength;
      if (this.shown - this.acked < ACK_STEP) return;
      this.acked = this.shown;
      this.#send({ ack: this.shown });
    });
  }

  #type(bytes) {
    // Keys typed while the shell connects are kept, and sent when it is ready.
    if (!this.opening || (!this.ready && this.waiting.length >= EARLY)) return;
    // A command that arrived a minute late could do harm, and nobody would see it run.
    if (this.since) return this.#notSent(bytes.length);
    for (let at = 0; at < bytes.length; at += PIECE) this.waiting.push(bytes.subarray(at, at + PIECE));
    this.#pour();
  }

  #pour() {
    while (this.ready && this.waiting.length && this.typed - this.taken < AHEAD) {
      const piece = this.waiting.shift();
      this.typed += piece.length;
      this.#send(piece);
    }
  }

  #notSent(bytes) {
    this.unsent += bytes;
    this.#say(`No contact since ${this.since}. Not sent: ${this.unsent} byte${this.unsent > 1 ? "s" : ""} that you typed.`, "bad");
  }

  #backInContact() {
    const left = this.unsent ? ` ${this.unsent} typed byte${this.unsent > 1 ? "s were" : " was"} not sent.` : "";
    this.#say(`Connected.${left}`, left ? "warn" : "good");
    this.since = "";
    this.unsent = 0;
  }

  #send(what) {
    this.wire.send(what);
  }

  #closed(reason) {
    const was = this.ready;
    if (this.since) reason = `Contact was lost at ${this.since}. What you typed after that did not arrive.`;
    this.since = "";
    this.ready = this.opening = false;
    this.waiting = [];
    this.#say(reason || (was ? "The connection was lost." : "The shell could not be opened."), "warn");
    this.terminal.write(`\r\n\x1b[2m[${was ? "closed" : "not opened"}]\x1b[0m\r\n`);
    this.again.hidden = false;
  }

  #say(text, tone = "") {
    this.state.textContent = text;
    this.state.dataset.tone = tone;
  }
}

for (const root of document.querySelectorAll("[data-shell]")) new ShellPage(root);
