// The keys that the keyboard of a phone does not have: a bar below the terminal.

const PLAIN = { escape: "\x1b", tab: "\t" };
const ARROWS = { up: "A", down: "B", right: "C", left: "D" };

export class TouchKeys {
  // `paste` is called for the key of that name.
  constructor(bar, terminal, paste) {
    Object.assign(this, { terminal, paste });
    this.ctrl = bar.querySelector('[data-key="ctrl"]');
    this.held = false;
    // The terminal keeps the focus, and with it the keyboard of the phone stays.
    bar.addEventListener("mousedown", (event) => event.preventDefault());
    bar.addEventListener("click", (event) => {
      const key = event.target.closest("[data-key]")?.dataset.key;
      if (key) this.#press(key);
    });
  }

  // What was typed, as Ctrl makes it if that is held. Ctrl is for one key.
  typed(text) {
    // Answers of the terminal to a program have several letters.
    if (!this.held || text.length !== 1) return text;
    this.#hold(false);
    return controlled(text);
  }

  #press(key) {
    if (key === "ctrl") this.#hold(!this.held);
    else if (key === "paste") this.paste();
    else this.#send(key);
    this.terminal.focus();
  }

  #send(key) {
    const isHeld = this.held;
    this.#hold(false);
    this.terminal.input(PLAIN[key] ?? this.#arrow(ARROWS[key], isHeld), true);
  }

  #arrow(letter, isHeld) {
    if (isHeld) return `\x1b[1;5${letter}`;
    return this.terminal.modes.applicationCursorKeysMode ? `\x1bO${letter}` : `\x1b[${letter}`;
  }

  #hold(held) {
    this.held = held;
    this.ctrl.setAttribute("aria-pressed", String(held));
  }
}

// As terminals have it: Ctrl+A to Ctrl+Z, and the signs beside them.
export function controlled(letter) {
  if (letter === " ") return "\0";
  if (letter === "?") return "\x7f";
  const code = letter.toUpperCase().charCodeAt(0);
  return code >= 64 && code < 96 ? String.fromCharCode(code & 31) : letter;
}
