// What is stored of all logs, page by page, by HTTP: lines above those that are loaded, and lines below them.

import { say } from "../texts.js";

export class MergedPages {
  constructor(api, replicas) {
    this.api = api;
    this.replicas = replicas;
    this.earlier = this.later = null;
    this.turn = 0;
  }

  // What the next page of each kind asks for; null if there is none.
  from({ earlier = null, later = null }) {
    this.turn += 1;
    this.earlier = earlier;
    this.later = later;
    this.busy = false;
  }

  // Returns the lines of the next page: parts, with the id of their run. Null if there is none, or another place is shown
  // meanwhile.
  async next(kind) {
    if (!this[kind] || this.busy) return null;
    const { turn } = this;
    this.busy = true;
    try {
      const chosen = this.replicas ? { replicas: this.replicas } : {};
      const answer = await fetch(`${this.api}/log/${kind}?${new URLSearchParams({ ...this[kind], ...chosen })}`);
      if (!answer.ok) throw new Error(say("the server answered {status}", { status: answer.status }));
      const { lines, nextPageToken } = await answer.json();
      if (turn !== this.turn) return null;
      this[kind] = nextPageToken ? { ...this[kind], pageToken: nextPageToken } : null;
      return lines.map(([id, end, at, text, missing]) => ({ id, end, at, text, kind: missing ? "note" : undefined }));
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }
}
