// What the command palette does on the page itself.

import { openInDialog } from "./dialogs.js";

const ACTS = {
  help: () => document.getElementById("help-link").click(),
  theme: () => document.querySelector("#theme-form button").click(),
};

// An act without a function of its own is a small page in a dialog.
export function act(name, address) {
  if (ACTS[name]) ACTS[name]();
  else openInDialog(address);
}
