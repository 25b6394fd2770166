// Addresses in the output. Only http and https open, in a page that knows nothing of this one. A program may put an
// address behind other words (OSC 8): there the whole address is shown, and a person is asked.

import { WebLinksAddon } from "../npm/xterm-links/lib/addon-web-links.mjs";

function isWeb(address) {
  try {
    return ["http:", "https:"].includes(new URL(address).protocol);
  } catch {
    return false;
  }
}

function open(address) {
  if (isWeb(address)) window.open(address, "_blank", "noopener,noreferrer");
}

// `place` shows the address under the pointer, whole. `dialog` asks.
export function followLinks(terminal, place, dialog) {
  const hover = (_event, address) => (place.textContent = isWeb(address) ? address : "");
  const leave = () => (place.textContent = "");
  const text = dialog.querySelector("[data-link=address]");
  terminal.loadAddon(new WebLinksAddon((_event, address) => open(address), { hover, leave }));
  terminal.options.linkHandler = {
    hover,
    leave,
    allowNonHttpProtocols: false,
    activate(_event, address) {
      if (!isWeb(address) || dialog.open) return;
      text.textContent = address;
      dialog.returnValue = "";
      dialog.showModal();
      dialog.addEventListener("close", () => dialog.returnValue === "yes" && open(address), { once: true });
    },
  };
}
