// A WebSocket that reconnects: after growing pauses, and at once when the network returns.

const FIRST_MS = 300;
const MAX_MS = 10_000;
// Close codes of console/consumers/socket_lifecycle.py that no new attempt would change.
const FINAL = new Set([4400, 4403, 4404]);

const WORDS = { live: "Live", lost: "Reconnecting…", off: "Not live" };

// Show the state of the connection at the top of the page.
export function dot(state, reason = "") {
  const element = document.getElementById("link-dot");
  if (!element) return;
  element.dataset.state = state;
  element.textContent = reason || WORDS[state];
}

export class Wire {
  // `hooks`: opened(), text(document), bytes(Uint8Array), closed({final, reason}).
  constructor(path, hooks) {
    this.path = path;
    this.hooks = hooks;
    this.pause = FIRST_MS;
    this.timer = 0;
    this.ended = false;
    this.soon = () => this.#again(0);
    window.addEventListener("online", this.soon);
    this.#connect();
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
    this.ended = true;
    clearTimeout(this.timer);
    window.removeEventListener("online", this.soon);
    this.socket.close();
  }

  #connect() {
    const url = new URL(this.path, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = (this.socket = new WebSocket(url));
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.hooks.opened?.();
    };
    socket.onmessage = ({ data }) => {
      this.pause = FIRST_MS;
      if (typeof data === "string") this.hooks.text?.(JSON.parse(data));
      else this.hooks.bytes?.(new Uint8Array(data));
    };
    socket.onclose = async ({ code, reason }) => {
      if (socket !== this.socket || this.ended) return;
      let final = FINAL.has(code);
      // The browser does not tell a page why a handshake was refused. The address of the page does.
      if (!opened && !final) [final, reason] = await refused();
      if (this.ended) return;
      this.ended = final;
      this.hooks.closed?.({ final, reason, code });
      if (!final) this.#again(this.pause * (0.7 + 0.6 * Math.random()));
      this.pause = Math.min(MAX_MS, this.pause * 2);
    };
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
    const answer = await fetch(location.pathname + location.search, { method: "HEAD", redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) return [true, "You are logged out."];
    if (answer.status === 403) return [true, "You no longer have permission."];
    if (answer.status === 404) return [true, "This page no longer exists."];
  } catch {
    // The server does not answer.
  }
  return [false, ""];
}
