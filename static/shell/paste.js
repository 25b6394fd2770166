// What is pasted: several lines are shown before they are typed, because a shell may run each at once.

import { say, sayMany } from "../texts.js";

const ASKED = "trainyard.shell.paste";
const SHOWN_LINES = 200;
const SHOWN_LETTERS = 20_000;

// The text as a terminal gets it. Control characters are left out: one of them could end the brackets by which a program
// knows that a text was pasted, and the rest would be typed as keys.
export function cleaned(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\r\n?/g, "\n").replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
}

// A program that asked for brackets gets a text whole, and runs nothing of it before Enter.
export function isRisky(text, isBracketed) {
  const lines = text.split("\n");
  return lines.length > 2 || (lines.length === 2 && (lines[1] !== "" || !isBracketed));
}

// A dialog that asks; resolves to whether the text is to be typed.
export class PasteQuestion {
  constructor(dialog) {
    this.dialog = dialog;
    for (const part of dialog.querySelectorAll("[data-paste]")) this[part.dataset.paste] = part;
    this.yes.addEventListener("click", () => dialog.close("yes"));
    this.no.addEventListener("click", () => dialog.close(""));
  }

  async allows(text, isBracketed) {
    if (!isRisky(text, isBracketed) || isSwitchedOff()) return true;
    if (this.dialog.open) return false;
    const lines = text.replace(/\n$/, "").split("\n");
    this.what.textContent = sayMany(lines.length, "Paste {number} line?", "Paste {number} lines?");
    this.how.textContent = isBracketed
      ? say("The program takes them as one text: it runs nothing before you press Enter.")
      : say("The program gets each line as if you had typed it and pressed Enter.");
    const shown = lines.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_LETTERS);
    const left = text.length - shown.length;
    this.text.textContent = left > 1 ? `${shown}\n… ${say("{number} more characters", { number: left })}` : shown;
    this.never.checked = false;
    this.dialog.returnValue = "";
    this.dialog.showModal();
    this.yes.focus();
    await new Promise((resolve) => this.dialog.addEventListener("close", resolve, { once: true }));
    const answer = this.dialog.returnValue === "yes";
    if (answer && this.never.checked) switchOff();
    return answer;
  }
}

let off = false;

function isSwitchedOff() {
  try {
    return off || sessionStorage.getItem(ASKED) === "never";
  } catch {
    return off;
  }
}

function switchOff() {
  off = true;
  try {
    sessionStorage.setItem(ASKED, "never");
  } catch {
    // A browser that stores nothing asks again after a reload.
  }
}
