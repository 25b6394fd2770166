// An asciicast of version 2, read from text. A program of a job wrote what is in it, so nothing is taken for granted:
// what is no event is left out, times only go forward, and a terminal is never larger than MOST.

const MOST = { cols: 500, rows: 200 };
const MAX_S = 10_000_000;
const PAUSE_S = 2; // a longer pause is shortened to this

export class NotReadable extends Error {}

export class Cast {
  constructor(header) {
    if (header?.version !== 2) throw new NotReadable();
    this.size = sizeOf(header.width, header.height) ?? { cols: 80, rows: 24 };
    this.events = []; // { kind, text }
    this.times = []; // when each happened, in seconds
    this.short = []; // the same, with pauses shortened
  }

  add(line) {
    const [at, kind, text] = line;
    if (!Number.isFinite(at) || typeof text !== "string" || !"ormx".includes(kind) || kind.length !== 1) return;
    const last = this.times.length - 1;
    const before = last < 0 ? 0 : this.times[last];
    const time = Math.min(MAX_S, Math.max(before, at));
    this.short.push((last < 0 ? 0 : this.short[last]) + Math.min(PAUSE_S, time - before));
    this.times.push(time);
    this.events.push({ kind, text });
  }

  // The times by which it is played.
  timeline(isShortened) {
    return isShortened ? this.short : this.times;
  }

  // The first event after this time.
  after(time, timeline) {
    let low = 0;
    let high = timeline.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeline[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export function sizeOf(cols, rows) {
  if (!(Number.isInteger(cols) && Number.isInteger(rows) && cols > 0 && rows > 0)) return null;
  return { cols: Math.min(cols, MOST.cols), rows: Math.min(rows, MOST.rows) };
}

// Read a cast line by line as it arrives. The last line may be unfinished: its rest is still on the host.
export async function readCast(stream, progressed) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let cast = null;
  for (;;) {
    const { done, value = "" } = await reader.read();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const found = parsed(line);
      if (!cast) cast = new Cast(found);
      else if (Array.isArray(found)) cast.add(found);
    }
    if (done) break;
    progressed(cast);
  }
  if (!cast) throw new NotReadable();
  return cast;
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
