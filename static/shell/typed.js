// What was typed, by offset. The host counts what it has taken; everything after that is kept here, over lost
// connections and a reload, and sent again. The host drops what it gets twice. So no key is lost, and none typed twice.

import { leftOf, STORED } from "./early.js";

const PIECE = 16 * 1024;
const AHEAD = 192 * 1024; // bytes that were sent and that the host has not taken yet
const MOST = 2 * 1024 * 1024; // bytes that wait; a paste that is longer is cut, and the page says so

export class Typed {
  // `shell`: the key of the shell. After a reload, what the page before has left is taken over, by one page only: the
  // copy of a tab finds nothing, and is a client of its own.
  constructor(shell) {
    this.name = STORED + shell;
    const left = leftOf(shell);
    if (left) sessionStorage.removeItem(this.name);
    this.client = left?.client ?? randomKey();
    this.taken = left?.taken ?? 0; // what the host has taken, as far as we know
    this.offered = left?.offered ?? 0; // sent at least once
    this.sent = 0; // sent over this connection
    this.pieces = left ? [bytesOf(left.waiting)] : [];
    this.end = this.taken + (this.pieces[0]?.length ?? 0);
    this.since = left && this.end > this.offered ? left.since : 0; // when the oldest byte that was never sent was typed
    this.send = null;
  }

  get unsent() {
    return this.end - Math.max(this.taken, this.offered);
  }

  // The bytes that were never sent.
  unsentBytes() {
    return this.#slice(Math.max(this.taken, this.offered), this.end);
  }

  type(bytes) {
    if (this.end - this.taken + bytes.length > MOST) return false;
    if (!this.unsent) this.since = Date.now();
    this.pieces.push(bytes);
    this.end += bytes.length;
    this.pour();
    return true;
  }

  // Forget what was never sent. What was sent may have been taken: it stays.
  forgetUnsent() {
    const keep = Math.max(this.taken, this.offered);
    this.pieces = [this.#slice(this.taken, keep)];
    this.end = keep;
  }

  // A new connection is open, and the host has taken so much of this client.
  connected(taken) {
    this.took(taken);
    this.sent = this.taken;
  }

  // Send what waits over the connection, and what will be typed.
  flow(send) {
    this.send = send;
    this.pour();
  }

  hold() {
    this.send = null;
  }

  took(taken) {
    let drop = taken - this.taken;
    while (drop > 0 && this.pieces.length) {
      const first = this.pieces[0];
      if (first.length > drop) this.pieces[0] = first.subarray(drop);
      else this.pieces.shift();
      drop -= first.length;
    }
    this.taken = Math.max(this.taken, taken);
    // A host that knows more than this page: a page before this one has lost what it had stored.
    this.end = Math.max(this.end, this.taken);
    this.pour();
  }

  pour() {
    while (this.send && this.sent < this.end && this.sent - this.taken < AHEAD) {
      const piece = this.#slice(this.sent, Math.min(this.end, this.sent + PIECE));
      if (!this.send(piece)) return;
      this.sent += piece.length;
      this.offered = Math.max(this.offered, this.sent);
    }
  }

  // `size`: that of the terminal, which the next page asks for.
  store(size) {
    const waiting = base64(this.#slice(this.taken, this.end));
    const { client, taken, offered, since } = this;
    try {
      sessionStorage.setItem(this.name, JSON.stringify({ client, taken, offered, since, waiting, size }));
    } catch {
      // A browser that stores nothing: the next page is another client.
    }
  }

  #slice(from, to) {
    const found = new Uint8Array(Math.max(0, to - from));
    let at = this.taken;
    for (const piece of this.pieces) {
      const begin = Math.max(from, at), end = Math.min(to, at + piece.length);
      if (begin < end) found.set(piece.subarray(begin - at, end - at), begin - from);
      at += piece.length;
    }
    return found;
  }
}

export function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return btoa(text);
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
