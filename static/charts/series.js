// The lines of a job, as the REST API answers them, and how new points are added to those that are there. No page.

const PATIENCE_MS = 15_000;

export const seconds = (time) => Date.parse(time) / 1000;

export async function fetchSeries(url, query) {
  const answer = await fetch(`${url}?${query}`, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
  return parsed(await answer.json());
}

export function parsed(told) {
  const start = seconds(told.from);
  const metrics = new Map();
  for (const metric of told.metrics) metrics.set(metric.name, metric);
  const marks = told.events.map((event) => ({ ...event, at: seconds(event.time) }));
  return { start, step: told.step, count: told.count, running: told.running, bands: told.bands, metrics, marks };
}

export const end = (series) => series.start + series.step * series.count;

export function times(series) {
  return Array.from({ length: series.count }, (_, at) => series.start + at * series.step);
}

// Whether the same charts with the same lines can show it.
export function sameLines(one, other) {
  if (one.metrics.size !== other.metrics.size) return false;
  for (const [name, metric] of one.metrics) {
    const lines = other.metrics.get(name)?.lines;
    if (lines?.length !== metric.lines.length) return false;
    if (metric.lines.some((line, at) => line.name !== lines[at].name)) return false;
  }
  return true;
}

// `newer` has the last steps once more, and those after them. At most `length` seconds are kept. Returns null where
// the two do not fit together: then everything has to be asked for again.
export function joined(series, newer, length, most) {
  if (newer.step !== series.step || !sameLines(series, newer)) return null;
  const until = end(newer);
  const since = Math.max(series.start, until - Math.ceil(length / series.step) * series.step);
  const count = Math.round((until - since) / series.step);
  if (count > most || newer.start < since || newer.start > end(series)) return null;
  const metrics = new Map();
  for (const [name, metric] of series.metrics) {
    const lines = metric.lines.map((line, at) => {
      const kept = line.values.slice((since - series.start) / series.step, (newer.start - series.start) / series.step);
      return { ...line, values: [...kept, ...newer.metrics.get(name).lines[at].values] };
    });
    metrics.set(name, { ...metric, lines });
  }
  const old = series.marks.filter((mark) => mark.at >= since && mark.at < newer.start);
  return { ...series, start: since, count, running: newer.running, metrics, marks: [...old, ...newer.marks] };
}
