// The socket of the shell that the address of the page names. It is opened as soon as the page is here: the terminal's
// scripts take longer to load and to begin than the server takes to answer. After a reload it asks for the screen too,
// in the size that the page had before. It imports nothing, which it would have to wait for.

export const STORED = "trainyard.shell.";
const KEY = /^[0-9a-f]{32}$/;

let address = "";
let socket = null;
let size = null; // in which the screen was asked for
const came = []; // what the socket has brought

export function addressOf(path, { key, run, watch }) {
  return `${path}${key}?run=${encodeURIComponent(run)}${watch ? "&watch=1" : ""}`;
}

// The socket to this address with what it has brought, and the size that it has told, if any; null if it is not here or
// has ended. It has one owner.
export function take(wanted) {
  const found = socket;
  if (wanted !== address || !found) return null;
  socket = null;
  return found.readyState <= WebSocket.OPEN ? { socket: found, came, size } : null;
}

// What the page before this one has left of the shell in this tab (typed.js); null if nothing.
export function leftOf(shell) {
  try {
    return JSON.parse(sessionStorage.getItem(STORED + shell));
  } catch {
    return null;
  }
}

const root = document.querySelector("[data-shells]");
const query = new URLSearchParams(location.search);
const key = query.get("shell") ?? "";
if (root && KEY.test(key) && !query.has("tab")) {
  address = addressOf(root.dataset.shells, { key, run: root.dataset.run, watch: query.has("watch") });
  connect(leftOf(key));
}

// What a page before this one has left says who asks and in which size: the first message stands in the address.
function connect(left) {
  size = left?.size ?? null;
  const hello = size && { resize: size, client: left.client, from: null };
  const url = new URL(hello ? `${address}&hello=${encodeURIComponent(JSON.stringify(hello))}` : address, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => came.push(data);
}
