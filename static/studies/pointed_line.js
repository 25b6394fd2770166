// The line of the trial that the pointer is nearest to: drawn above the others, and named below the plot.

import { say } from "../texts.js";

const NEAR_PX = 10;
const WIDTH = 600, HEIGHT = 90;
const SVG = "http://www.w3.org/2000/svg";
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
  for (const path of svg.querySelectorAll("[data-trial]:not(.out)")) {
    const y = heightAt(path, x);
    const away = y === undefined ? Infinity : Math.abs(event.clientY - box.top - (y / HEIGHT) * box.height);
    if (away < least) [found, least] = [path, away];
  }
  return found;
}

export function point(event) {
  const svg = event.target.closest?.(".brushed")?.querySelector("svg");
  const words = document.getElementById("pointed-line");
  const shown = document.querySelector(".brushed .pointed");
  const found = svg && nearest(svg, event);
  if (!found) {
    shown?.remove();
    if (words?.textContent) words.textContent = "";
    return;
  }
  const line = shown ?? document.createElementNS(SVG, "path");
  line.setAttribute("class", "line pointed");
  line.setAttribute("d", found.getAttribute("d"));
  if (!shown) svg.append(line);
  const text = say("Trial {number}: {metric} {value}.", {
    number: found.dataset.trial, metric: words.dataset.metric, value: found.dataset.value,
  });
  if (words.textContent !== text) words.textContent = text;
}
