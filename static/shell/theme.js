// The colours of terminals: dark on both looks of the console, as programs expect it.

export const THEME = {
  background: "#0d1117",
  foreground: "#e6edf3",
  cursor: "#7db3ff",
  selectionBackground: "#33507a",
};
