// Output that the terminal gets a second time: after a reload, or when somebody comes later. Programs ask terminals
// questions ("which kind are you?", "where is the cursor?"). They have their answers already: a terminal that answered
// again would type them into the shell.

const QUESTIONS = [
  { final: "c" },
  { prefix: ">", final: "c" },
  { prefix: "=", final: "c" },
  { final: "n" },
  { prefix: "?", final: "n" },
  { prefix: ">", final: "q" },
  { intermediates: "$", final: "p" },
  { prefix: "?", intermediates: "$", final: "p" },
  { final: "t" },
];
const COLOURS = [4, 10, 11, 12];

export class Replay {
  constructor(terminal) {
    this.terminal = terminal;
    this.coming = 0; // bytes of the replay that were not written yet
    this.left = 0; // and those that are not on the screen yet
    const replaying = () => this.left > 0;
    for (const id of QUESTIONS) terminal.parser.registerCsiHandler(id, replaying);
    terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, replaying);
    for (const number of COLOURS) terminal.parser.registerOscHandler(number, (text) => replaying() && text.includes("?"));
  }

  // So many bytes that come next are old.
  begin(bytes) {
    this.coming = this.left = bytes;
  }

  // Write to the terminal, and call `shown(size)` when bytes are on the screen.
  write(data, shown) {
    const old = Math.min(this.coming, data.length);
    this.coming -= old;
    if (old) {
      this.terminal.write(data.subarray(0, old), () => {
        this.left -= old;
        shown(old);
      });
    }
    const fresh = data.length - old;
    if (fresh) this.terminal.write(data.subarray(old), () => shown(fresh));
  }
}
