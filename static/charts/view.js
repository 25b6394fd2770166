// What of the job's time is looked at, kept in the address of the page: a link shows the same.

import { utc } from "./times.js";

// Replicas, bands and span as the server read them from the address: they change with a new page only.
let base = new URLSearchParams();

const LENGTHS = { hour: 3600, day: 86400, all: Infinity };

function query() {
  return new URLSearchParams(location.search);
}

function write(asked) {
  const text = asked.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  history.replaceState(history.state, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
}

export function begin(text) {
  base = new URLSearchParams(text);
}

// Links to the table of use were written before the person zoomed. They keep what is looked at.
function kept(path) {
  const url = new URL(path, location.href);
  if (url.pathname !== location.pathname || url.hash !== "#job-use") return path;
  const asked = new URLSearchParams(url.search);
  for (const name of ["from", "to", "hide"]) {
    if (query().has(name)) asked.set(name, query().get(name));
    else asked.delete(name);
  }
  return `?${asked}${url.hash}`;
}

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.boosted) detail.path = kept(detail.path);
});
document.addEventListener("click", ({ target }) => {
  const link = target.closest?.("a[href$='#job-use']");
  if (link) link.setAttribute("href", kept(link.getAttribute("href")));
}, { capture: true });

// How many seconds before the newest sample are followed.
export function length() {
  return LENGTHS[base.get("span") ?? "hour"] ?? LENGTHS.hour;
}

export function isZoomed() {
  return query().has("from");
}

// `from` and `to` in seconds; without them, the whole time is shown again.
export function zoom(from, to) {
  const asked = query();
  for (const [name, at] of [["from", from], ["to", to]]) {
    if (at === undefined) asked.delete(name);
    else asked.set(name, utc(at));
  }
  write(asked);
}

export function hidden() {
  return new Set((query().get("hide") ?? "").split(",").filter(Boolean));
}

export function hide(names) {
  const asked = query();
  if (names.size) asked.set("hide", [...names].join(","));
  else asked.delete("hide");
  write(asked);
}

// The part of the address that the REST API understands, too.
export function forApi(changes = {}) {
  const asked = new URLSearchParams(base);
  const page = query();
  for (const name of ["from", "to"]) {
    if (page.get(name)) asked.set(name, page.get(name));
  }
  for (const [name, value] of Object.entries(changes)) asked.set(name, value);
  return asked;
}
