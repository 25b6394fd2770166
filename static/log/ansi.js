// Turn text with terminal escapes into pieces of plain text with a style. Only colours and weights (SGR) have an effect,
// and what progress bars need: the cursor up and down, and erasing. Every other escape is dropped. What a program prints never becomes markup: pieces are painted as text nodes, and
// class names and colours are made from numbers alone.

const CONTROL = new RegExp(
  "\\x1b(?:" +
    "\\[([0-?]{0,64})([ -/]{0,8})([@-~])" + // CSI: colours, cursor movements
    "|[\\]P^_X][^\\x07\\x1b\\x9c]{0,4096}(?:\\x07|\\x1b\\\\|\\x9c)" + // OSC, DCS, ...: titles, links, clipboards
    "|[ -/]{1,4}[0-~]" + // character sets
    "|[0-Z\\\\`-~]" + // single functions
    ")|[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060\\u2066-\\u2069\\ufeff]",
  "g",
);
// An escape that is cut off at the end of the bytes that have arrived.
const UNFINISHED = /^\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]P^_X][^\x07\x1b\x9c]{0,4096}\x1b?|[ -/]{0,4})?$/;
// Directions and letters of no width could make a text look like another. They are shown, not obeyed.
const HIDDEN = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/;

export const PLAIN = Object.freeze({
  fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false,
});
const SWITCHES = {
  1: { bold: true }, 2: { dim: true }, 3: { italic: true }, 4: { underline: true }, 7: { inverse: true },
  9: { strike: true }, 21: { underline: true }, 22: { bold: false, dim: false }, 23: { italic: false },
  24: { underline: false }, 27: { inverse: false }, 29: { strike: false }, 39: { fg: null }, 49: { bg: null },
};

export const CARRIAGE_RETURN = Symbol("carriage return");
// Erase the line of the cursor, or the part behind the cursor, or that and all lines below.
export const ERASE_LINE = Symbol("erase line");
export const ERASE_REST = Symbol("erase rest");
export const ERASE_BELOW = Symbol("erase below");

export class Ansi {
  constructor() {
    this.style = PLAIN;
    this.unfinished = "";
  }

  // Returns the pieces of `text`: {text, style}, {down: lines}, or one of the symbols above. An escape may be cut anywhere between two calls.
  read(text) {
    text = this.unfinished + text;
    this.unfinished = "";
    const last = text.lastIndexOf("\x1b");
    // "\x1b\\" ends a string, so an unfinished escape may begin at the last escape character but one.
    for (const at of [last > 0 ? text.lastIndexOf("\x1b", last - 1) : -1, last]) {
      if (at >= 0 && UNFINISHED.test(text.slice(at))) {
        this.unfinished = text.slice(at);
        text = text.slice(0, at);
        break;
      }
    }
    const pieces = [];
    let from = 0;
    for (const control of text.matchAll(CONTROL)) {
      this.#add(pieces, text.slice(from, control.index));
      from = control.index + control[0].length;
      if (control[0] === "\r") pieces.push(CARRIAGE_RETURN);
      else if (control[3] === "m" && !control[2]) this.#select(control[1]);
      else if (control[3] && !control[2]) pieces.push(...cursor(control[3], control[1]));
      else if (HIDDEN.test(control[0])) this.#add(pieces, "\ufffd");
    }
    this.#add(pieces, text.slice(from));
    return pieces;
  }

  #add(pieces, text) {
    if (text) pieces.push({ text, style: this.style });
  }

  #select(parameters) {
    if (/[<=>?]/.test(parameters)) return;
    const numbers = parameters.split(/[;:]/).map(Number);
    let style = { ...this.style };
    for (let i = 0; i < numbers.length; i++) {
      const n = numbers[i];
      if (n === 0) style = { ...PLAIN };
      else if (n === 38 || n === 48) i += this.#palette(style, n === 38 ? "fg" : "bg", numbers.slice(i + 1));
      else if (n >= 30 && n <= 37) style.fg = n - 30;
      else if (n >= 40 && n <= 47) style.bg = n - 40;
      else if (n >= 90 && n <= 97) style.fg = n - 82;
      else if (n >= 100 && n <= 107) style.bg = n - 92;
      else Object.assign(style, SWITCHES[n]);
    }
    this.style = Object.freeze(style);
  }

  // Reads 5;n or 2;r;g;b. Returns how many numbers it used.
  #palette(style, side, [kind, ...rest]) {
    const bytes = rest.map((n) => Math.min(255, Math.max(0, Math.trunc(n) || 0)));
    if (kind === 5 && bytes.length >= 1) {
      style[side] = bytes[0] < 16 ? bytes[0] : cube(bytes[0]);
      return 2;
    }
    if (kind === 2 && bytes.length >= 3) {
      style[side] = `rgb(${bytes[0]},${bytes[1]},${bytes[2]})`;
      return 4;
    }
    return rest.length + 1;
  }
}

// Returns what a movement of the cursor or an erasure does, as far as progress bars use it.
function cursor(letter, parameters) {
  if (!/^[0-9]{0,3}$/.test(parameters)) return [];
  const n = Number(parameters);
  switch (letter) {
    case "A": return [{ down: -Math.max(n, 1) }];
    case "B": return [{ down: Math.max(n, 1) }];
    case "E": return [{ down: Math.max(n, 1) }, CARRIAGE_RETURN];
    case "F": return [{ down: -Math.max(n, 1) }, CARRIAGE_RETURN];
    case "G": return n <= 1 ? [CARRIAGE_RETURN] : [];
    case "K": return n === 0 ? [ERASE_REST] : n === 2 ? [ERASE_LINE] : [];
    case "J": return n === 0 ? [ERASE_BELOW] : [];
    default: return [];
  }
}

// Returns one of the 256 colours beyond the first 16: a cube of 6 x 6 x 6, then 24 greys.
function cube(n) {
  if (n >= 232) return `rgb(${Array(3).fill(8 + 10 * (n - 232)).join(",")})`;
  const level = (i) => (i ? 55 + 40 * i : 0);
  n -= 16;
  return `rgb(${level(Math.trunc(n / 36))},${level(Math.trunc(n / 6) % 6)},${level(n % 6)})`;
}

export function isPlain(style) {
  return style === PLAIN || Object.keys(PLAIN).every((key) => style[key] === PLAIN[key]);
}

// Returns the node of a piece: a text node, in a span if the piece has a style.
export function paint({ text, style }) {
  if (isPlain(style)) return document.createTextNode(text);
  const span = document.createElement("span");
  const names = ["bold", "dim", "italic", "underline", "strike"].filter((name) => style[name]).map((name) => `s-${name}`);
  const [fg, bg] = style.inverse ? [style.bg ?? "i", style.fg ?? "i"] : [style.fg, style.bg];
  for (const [side, value, property] of [["f", fg, "color"], ["b", bg, "background-color"]]) {
    if (value === null) continue;
    if (typeof value === "string" && value !== "i") span.style.setProperty(property, value);
    else names.push(`${side}-${value}`);
  }
  if (names.length) span.className = names.join(" ");
  span.textContent = text;
  return span;
}
