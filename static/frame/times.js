// Times in the zone of the person. The server's text is UTC, so that parts of pages are equal for all viewers; here it
// becomes that of the zone from Preferences, or of the browser. UTC stands in the title; a click on a time, or the key u,
// shows it on the whole page, and again shows the zone.

const root = document.documentElement;
let inUtc = false;

function formatter(zone) {
  const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const choice = { ...parts, hourCycle: "h23", timeZoneName: "short" };
  try {
    return new Intl.DateTimeFormat("en-GB", { ...choice, timeZone: zone || undefined });
  } catch {
    // The browser does not know this zone.
    return new Intl.DateTimeFormat("en-GB", choice);
  }
}

// The first format that a browser makes takes longer than all other work of this page's scripts: it is made when needed.
const formats = new Map();

function text(zone, moment) {
  if (!formats.has(zone)) formats.set(zone, formatter(zone));
  const parts = formats.get(zone).formatToParts(moment);
  const part = Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second} ${part.timeZoneName}`;
}

const zoneOf = (asUtc) => (asUtc ? "UTC" : root.dataset.zone);

// A moment in words, as all times of the page are shown; with `asUtc`, in UTC whatever the page shows.
export const inZone = (moment, asUtc = inUtc) => text(zoneOf(asUtc || inUtc), moment);

// The time of day alone. Logs ask for thousands a second: of each minute, the browser is asked once.
const minutes = new Map();

export function clockInZone(moment, asUtc = inUtc) {
  const second = Math.floor(moment / 1000);
  const minute = Math.floor(second / 60);
  const key = `${asUtc || inUtc} ${minute}`;
  if (minutes.size > 5000) minutes.clear();
  if (!minutes.has(key)) minutes.set(key, inZone(minute * 60_000, asUtc).split(" ")[1].slice(0, 5));
  return `${minutes.get(key)}:${String(second % 60).padStart(2, "0")}`;
}

// The short name of the zone that is shown now.
export const zoneName = (asUtc) => inZone(Date.now(), asUtc).split(" ").slice(2).join(" ");

// As a field for a date and a time has it, and what such a field means: NaN if it is empty.
export const fieldInZone = (moment, asUtc) => inZone(moment, asUtc).split(" ").slice(0, 2).join("T");

export function momentOfField(value, asUtc) {
  const there = Date.parse(`${value}Z`);
  if (Number.isNaN(there)) return there;
  const ahead = (moment) => Date.parse(`${fieldInZone(moment, asUtc)}Z`) - moment;
  // The offset of the zone is that of the moment itself, which the first look finds within hours.
  return there - ahead(there - ahead(there));
}

function write(element) {
  const moment = Date.parse(element.dataset.when ?? element.dataset.ago);
  if (Number.isNaN(moment)) return;
  // A time ago has its moment in the title only.
  const here = inZone(moment);
  const there = text(zoneOf(!inUtc), moment);
  if (!element.dataset.when) element.title = here === there ? here : `${here} · ${there}`;
  else {
    if (element.textContent !== here) element.textContent = here;
    element.title = there;
  }
}

export function paintTimes(within = document) {
  for (const element of within.querySelectorAll("[data-when], time[data-ago]")) write(element);
}

// Scripts that show times themselves write them again when this comes.
export const SWITCHED = "times:switched";

export function switchToUtc() {
  inUtc = !inUtc;
  paintTimes();
  document.dispatchEvent(new Event(SWITCHED));
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-when]") && !event.target.closest("a, button")) switchToUtc();
});
// A part that a socket or a request has brought has the server's text. It is written again before the browser paints.
for (const name of ["htmx:afterSwap", "htmx:oobAfterSwap"]) {
  document.addEventListener(name, ({ detail }) => paintTimes(detail.target?.isConnected ? detail.target : document));
}
// In a task of its own: the person can click and type before it.
setTimeout(paintTimes);
