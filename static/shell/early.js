// The socket of the shell that the address of the page names. It is opened as soon as the page is here: the terminal's
// scripts take longer to load and to begin than the server takes to answer.

const KEY = /^[0-9a-f]{32}$/;

let address = "";
let socket = null;

export function addressOf(path, { key, run, watch }) {
  return `${path}${key}?run=${encodeURIComponent(run)}${watch ? "&watch=1" : ""}`;
}

// The socket to this address, if it is here and lives. It has one owner.
export function take(wanted) {
  const found = socket;
  if (wanted !== address || !found) return null;
  socket = null;
  if (found.readyState <= WebSocket.OPEN) return found;
  return null;
}

const root = document.querySelector("[data-shells]");
const query = new URLSearchParams(location.search);
const key = query.get("shell") ?? "";
if (root && KEY.test(key) && !query.has("tab")) {
  address = addressOf(root.dataset.shells, { key, run: root.dataset.run, watch: query.has("watch") });
  const url = new URL(address, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  socket = new WebSocket(url);
}
