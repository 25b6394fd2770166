// A WebSocket that reconnects, and that notices when its path is cut.
//
// A connection whose path is cut looks open to the browser for many minutes. So the server says something every 3 s
// (console/live/beats.py). After 8 s of silence the page is stale: it says since when, and asks for a small file until
// the server answers. Then it connects again.

import { dot, forget, report } from "./link.js";
import { reachable } from "./reachable.js";
import { say } from "./texts.js";

const FIRST_MS = 300;
const MAX_MS = 10_000;
const SILENT_MS = 8000;
// A page that slept, or was throttled, hears the server within this time if the path is good.
const AWAKE_MS = 3500;
const TICK_MS = 500;
// A dial over a cut path never ends by itself.
const DIAL_MS = 3000;
// Close codes of console/consumers/socket_lifecycle.py that no new attempt would change.
const FINAL = new Set([4400, 4403, 4404]);

const wires = new Set();
let ticked = Date.now();

function tick() {
  const passed = Date.now() - ticked;
  ticked += passed;
  const slept = passed < 0 || passed > 2500;
  for (const wire of wires) wire.watch(slept);
}

setInterval(tick, TICK_MS);
document.addEventListener("visibilitychange", tick);

export { dot };

export class Wire {
  // `hooks`: opened(), text(document), html(text), bytes(Uint8Array), closed({final, reason, code}), stale(since),
  // heard(). With `once`, a socket that closed is not opened again. `socket`: one to this path that is there already,
  // and `came` what it has brought.
  constructor(path, hooks, { once = false, socket = null, came = [] } = {}) {
    this.path = path;
    this.hooks = hooks;
    this.once = once;
    this.pause = FIRST_MS;
    this.timer = this.dial = 0;
    this.ended = this.stale = false;
    // A server that sends no beats may be silent.
    this.quiet = false;
    this.heardAt = Date.now();
    this.deadline = performance.now() + SILENT_MS;
    this.soon = () => this.#again(0);
    window.addEventListener("online", this.soon);
    wires.add(this);
    this.#connect(socket, came);
  }

  get open() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  send(what) {
    if (!this.open) return false;
    this.socket.send(what instanceof Uint8Array ? what : JSON.stringify(what));
    return true;
  }

  end() {
    this.#finish();
    this.socket.close();
    forget(this);
  }

  // Look whether the server has been silent for too long.
  watch(slept) {
    const now = performance.now();
    if (slept) this.deadline = now + AWAKE_MS;
    if (this.stale || this.refusal || this.quiet || now < this.deadline) return;
    this.stale = true;
    report(this, "stale", "", this.heardAt);
    this.hooks.stale?.(this.heardAt);
    this.#seek();
  }

  // The server can be reached again: connect. What is left of the old connection may still bring the answer before.
  async #seek() {
    await reachable();
    if (this.once) await new Promise((resolve) => setTimeout(resolve, AWAKE_MS));
    if (!this.stale || this.ended) return;
    if (!this.once) return this.#connect();
    this.#closed({ code: 1006, reason: "" }, true);
    this.socket.close();
  }

  #heard() {
    this.heardAt = Date.now();
    this.deadline = performance.now() + SILENT_MS;
    if (this.stale) this.hooks.heard?.();
    this.stale = false;
    report(this, "live");
  }

  #connect(ready = null, came = []) {
    clearTimeout(this.timer);
    clearTimeout(this.dial);
    const url = new URL(this.path, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const old = this.socket;
    const socket = (this.socket = ready ?? new WebSocket(url));
    old?.close();
    socket.binaryType = "arraybuffer";
    let opened = false;
    if (this.stale) this.dial = setTimeout(() => !opened && socket === this.socket && this.#seek(), DIAL_MS);
    socket.onopen = () => {
      if (socket !== this.socket) return;
      opened = this.quiet = true;
      // A server that refuses opens the socket and closes it with its reason.
      if (!this.refusal) this.#heard();
      this.hooks.opened?.();
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.pause = FIRST_MS;
      this.refusal = "";
      this.#heard();
      this.#received(data);
    };
    socket.onclose = (event) => {
      if (socket === this.socket && !this.ended) this.#closed(event, opened);
    };
    // Later, as all that a socket tells: whoever made this wire does not have it yet.
    if (socket.readyState !== WebSocket.OPEN) return;
    queueMicrotask(() => {
      socket.onopen();
      for (const data of came) socket.onmessage({ data });
    });
  }

  #received(data) {
    if (typeof data !== "string") {
      this.hooks.bytes?.(new Uint8Array(data));
    } else if (data.startsWith("{")) {
      const message = JSON.parse(data);
      if (message.beat) this.#beaten(message.beat);
      else this.hooks.text?.(message);
    } else {
      this.hooks.html?.(data);
    }
  }

  #beaten(seconds) {
    this.quiet = false;
    document.dispatchEvent(new CustomEvent("trainyard:beat", { detail: seconds }));
  }

  async #closed({ code, reason }, opened) {
    const socket = this.socket;
    clearTimeout(this.dial);
    this.quiet = false;
    let final = FINAL.has(code);
    // The browser does not tell a page why a handshake was refused. The address of the page does.
    if (!opened && !final && !reason) [final, reason] = await refused();
    if (this.ended || socket !== this.socket) return;
    // A server that says why it refuses is no dead path: it is not asked more often for that.
    this.refusal = reason;
    if (final || this.once) this.#finish();
    // A page without its only socket says so itself.
    if (this.once) forget(this);
    else if (final || reason || !this.stale) report(this, final ? "off" : "lost", reason);
    this.hooks.closed?.({ final, reason, code });
    if (!this.ended) this.#again(this.pause * (0.7 + 0.6 * Math.random()));
    this.pause = Math.min(MAX_MS, this.pause * 2);
  }

  #finish() {
    this.ended = true;
    wires.delete(this);
    clearTimeout(this.timer);
    clearTimeout(this.dial);
    window.removeEventListener("online", this.soon);
  }

  #again(wait) {
    clearTimeout(this.timer);
    if (this.ended || this.socket.readyState < WebSocket.CLOSING) return;
    this.timer = setTimeout(() => this.#connect(), wait);
  }
}

// Ask whether the person may still see this page. Returns [final, message].
async function refused() {
  try {
    const answer = await fetch(location.pathname + location.search, {
      method: "HEAD",
      redirect: "manual",
      signal: AbortSignal.timeout(MAX_MS),
    });
    if (answer.type === "opaqueredirect" || answer.status === 401) return [true, say("You are logged out.")];
    if (answer.status === 403) return [true, say("You no longer have permission.")];
    if (answer.status === 404) return [true, say("This page no longer exists.")];
    if (answer.status === 429) return [false, say("Too many requests at once.")];
  } catch {
    // The server does not answer.
  }
  return [false, ""];
}
