// Times of charts in the zone of the person who looks, as the page shows them.

const DAY_S = 86400;

export function zone() {
  return document.documentElement.dataset.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function format(options) {
  const language = document.documentElement.lang || undefined;
  return new Intl.DateTimeFormat(language, { timeZone: zone(), hourCycle: "h23", ...options });
}

const CLOCK = { hour: "2-digit", minute: "2-digit" };

// What a tick is called: the time of day, and the day as well where the axis spans several.
export function ticks(seconds, length) {
  const clock = format(length < 900 ? { ...CLOCK, second: "2-digit" } : CLOCK);
  const day = format({ month: "short", day: "numeric" });
  if (length > 4 * DAY_S) return seconds.map((at) => day.format(at * 1000));
  let before = "";
  return seconds.map((at) => {
    const today = day.format(at * 1000);
    const shown = before && before !== today ? `${today}\n${clock.format(at * 1000)}` : clock.format(at * 1000);
    before = today;
    return shown;
  });
}

export function moment(seconds) {
  const options = { month: "short", day: "numeric", ...CLOCK, second: "2-digit", timeZoneName: "short" };
  return format(options).format(seconds * 1000);
}

export function utc(seconds) {
  return `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
}
