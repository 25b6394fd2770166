// The line below the log: its size, whether all of it is stored, and what goes wrong.

import { say } from "../texts.js";
import { bytes } from "./notes.js";

export class Footer {
  constructor(view, line) {
    this.view = view;
    this.line = line;
  }

  say(text, tone = "") {
    if (this.line.textContent !== text) this.line.textContent = text;
    this.line.dataset.tone = tone;
  }

  show() {
    const { view } = this;
    const { status, bottom } = view;
    if (!status) return;
    const unread = status.run === bottom.run ? status.size - bottom.offset : 0;
    const size = bytes(unread);
    view.more.textContent = unread > 0 ? say("↓ {size} further down", { size }) : say("↓ To the end");
    view.download.href = `${view.raw}?run=${encodeURIComponent(bottom.run || status.run)}`;
    this.#follow(status);
    view.empty.hidden = view.rows.length > 0 || bottom.offset > 0;
    this.#size(status);
  }

  // Nothing comes any more that could be paused or followed. A run that starts again has a status of its own.
  #follow({ complete }) {
    const { follow, end } = this.view;
    if (complete && document.activeElement === follow) end.focus();
    follow.hidden = Boolean(complete);
  }

  #size(status) {
    const size = bytes(status.size);
    if (!status.complete) {
      const behind = status.size - status.stored;
      if (status.held) this.say(status.held, "warn");
      else if (behind <= 0) this.say(size);
      else this.say(say("{size}, {behind} of them still on the host", { size, behind: bytes(behind) }));
    } else if (status.matches) {
      const digest = status.digest_here.replace(/^(sha256|blocks8m):/, "");
      this.say(say("Complete: {size}, SHA-256 {digest} equal to the host's", { size, digest }), "good");
    } else if (status.matches === false) {
      this.say(say("{size}, but the SHA-256 is not the host's: the log differs", { size }), "bad");
    } else {
      this.say(say("Ended: {size}", { size }));
    }
  }
}
