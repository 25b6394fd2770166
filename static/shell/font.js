// The size of the letters in all terminals, chosen by A− and A+, and kept in this browser.

const KEPT = "trainyard.shell.font";
const LEAST = 8;
const MOST = 32;
const USUAL = 14;
const STEP = 2;
const followers = new Set();

let size = kept();

export class FontSize {
  // `buttons`: smaller and larger. `changed` is told of each new size, whichever terminal of the page it was chosen at.
  constructor({ smaller, larger }, changed) {
    Object.assign(this, { smaller, larger, changed });
    smaller.addEventListener("click", () => choose(size - STEP));
    larger.addEventListener("click", () => choose(size + STEP));
    followers.add(this);
    this.draw();
  }

  get size() {
    return size;
  }

  draw() {
    this.smaller.disabled = size <= LEAST;
    this.larger.disabled = size >= MOST;
  }

  end() {
    followers.delete(this);
  }
}

function choose(wanted) {
  size = Math.min(MOST, Math.max(LEAST, wanted));
  try {
    localStorage.setItem(KEPT, String(size));
  } catch {
    // A browser that stores nothing begins with the usual size again.
  }
  for (const each of followers) {
    each.draw();
    each.changed(size);
  }
}

function kept() {
  try {
    const found = Number(localStorage.getItem(KEPT));
    return found >= LEAST && found <= MOST ? Math.round(found) : USUAL;
  } catch {
    return USUAL;
  }
}
