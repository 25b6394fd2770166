// The line of the trial that the pointer is nearest to, or that keys have chosen: drawn above the others, and named below the plot.

import { say } from "../texts.js";

const NEAR_PX = 10;
const WIDTH = 600, HEIGHT = 90;
const SVG = "http://www.w3.org/2000/svg";
const SHOWN = "[data-trial]:not(.out)";
const points = new WeakMap();

function pointsOf(path) {
  const d = path.getAttribute("d");
  const known = points.get(path);
  if (known?.d === d) return known.found;
  const found = d.split(/[ML]/).slice(1).map((pair) => pair.split(" ").map(Number));
  points.set(path, { d, found });
  return found;
}

// The height of the line at this place, or nothing where it does not reach.
function heightAt(path, x) {
  const found = pointsOf(path);
  const after = found.findIndex(([at]) => at >= x);
  if (after < 0 || (after === 0 && found[0][0] !== x)) return undefined;
  if (after === 0) return found[0][1];
  const [[x0, y0], [x1, y1]] = [found[after - 1], found[after]];
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

function nearest(svg, event) {
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * WIDTH;
  let found, least = NEAR_PX;
  for (const path of svg.querySelectorAll(SHOWN)) {
    const y = heightAt(path, x);
    const away = y === undefined ? Infinity : Math.abs(event.clientY - box.top - (y / HEIGHT) * box.height);
    if (away < least) [found, least] = [path, away];
  }
  return found;
}

// Draws this line above the others and names it, or nothing.
function show(svg, found) {
  const words = document.getElementById("pointed-line");
  const shown = document.querySelector(".brushed .pointed");
  if (!found) {
    shown?.remove();
    if (words?.textContent) words.textContent = "";
    return "";
  }
  const line = shown ?? document.createElementNS(SVG, "path");
  line.setAttribute("class", "line pointed");
  line.setAttribute("d", found.getAttribute("d"));
  if (!shown) svg.append(line);
  const text = say("Trial {number}: {metric} {value}.", {
    number: found.dataset.trial, metric: words.dataset.metric, value: found.dataset.value,
  });
  if (words.textContent !== text) words.textContent = text;
  return text;
}

export function point(event) {
  if (document.activeElement?.classList.contains("walker")) return;
  const svg = event.target.closest?.(".brushed")?.querySelector("svg");
  show(svg, svg && nearest(svg, event));
}

// The same by keys: a slider over the trials that are drawn, in the order of their numbers. It begins with the best one. `plot`: gives the
// drawing as it is now.
export function makeWalker(plot) {
  const walker = document.createElement("span");
  walker.className = "walker";
  walker.tabIndex = 0;
  walker.dataset.handle = "walker";
  walker.setAttribute("role", "slider");
  walker.setAttribute("aria-label", say("The lines of the trials"));
  const number = (path) => Number(path.dataset.trial);
  const lines = () => [...plot().querySelectorAll(SHOWN)].sort((one, other) => number(one) - number(other));
  let at = plot().querySelector(".best")?.dataset.trial;

  function stand(by) {
    const all = lines();
    if (!all.length) return;
    const place = all.findIndex((path) => path.dataset.trial === at);
    const next = all[Math.min(Math.max(by(place, all.length), 0), all.length - 1)];
    at = next.dataset.trial;
    const text = show(plot(), next);
    for (const [name, value] of [["min", number(all[0])], ["max", number(all.at(-1))], ["now", number(next)]]) {
      walker.setAttribute(`aria-value${name}`, String(value));
    }
    walker.setAttribute("aria-valuetext", text);
  }

  const moves = {
    ArrowRight: (place) => place + 1, ArrowUp: (place) => place + 1, PageUp: (place) => place + 10,
    ArrowLeft: (place) => place - 1, ArrowDown: (place) => place - 1, PageDown: (place) => place - 10,
    Home: () => 0, End: (_place, count) => count - 1,
  };
  walker.addEventListener("focus", () => stand((place, count) => (place < 0 ? count - 1 : place)));
  walker.addEventListener("blur", () => show(plot(), undefined));
  walker.addEventListener("keydown", (event) => {
    if (!(event.key in moves)) return;
    event.preventDefault();
    stand(moves[event.key]);
  });
  // Ranges may leave no line.
  const first = plot().querySelector(".best") ?? lines()[0];
  const values = first ? { min: 1, max: number(lines().at(-1) ?? first), now: number(first) } : {};
  for (const [name, value] of Object.entries(values)) walker.setAttribute(`aria-value${name}`, String(value));
  return walker;
}
