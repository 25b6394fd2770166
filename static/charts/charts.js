// The charts of a job's page: one cursor over all of them and over what happened, zoom, and new points while it runs.
// Without this file the page shows the same lines as the server drew them.

import { say } from "../texts.js";
import { near, resolved, signs } from "./marks.js";
import { Plot } from "./plot.js";
import * as series from "./series.js";
import { moment, zone } from "./times.js";
import * as view from "./view.js";

const { uPlot } = window;
const POINTS = 240;
const STRIP_PX = 30;
const SMALLEST_S = 60;

class Board {
  constructor(section) {
    this.section = section;
    this.url = section.dataset.url;
    view.begin(section.dataset.query);
    this.area = section.querySelector("[data-charts]");
    this.hidden = view.hidden();
    this.plots = [];
    this.series = null;
    this.colors = new Map();
    this.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.cursor = { sync: { key: "job-charts", setSeries: false }, drag: { x: true, y: false, setScale: false } };
    this.marks = () => this.series?.marks ?? [];
    // uPlot draws a little later than it is told to.
    this.range = () => (this.series ? [this.series.start, series.end(this.series)] : [0, 1]);
    this.dateOf = (at) => uPlot.tzDate(new Date(at * 1000), zone());
    this.paint = (name, part = 1) => this.#paint(name, part);
  }

  async start() {
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "group");
    this.area.setAttribute("aria-label", say("Charts"));
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.section.querySelector("[data-chart-help]").hidden = false;
    this.#makeStrip();
    await this.load();
    new ResizeObserver(() => this.#resize()).observe(this.area);
    const recolor = () => this.#recolor();
    new MutationObserver(recolor).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
    // The page's socket pushes them (live.js).
    const points = document.getElementById("job-points");
    const watch = { childList: true, characterData: true, subtree: true };
    if (points) new MutationObserver(() => this.#add(points.textContent)).observe(points, watch);
  }

  // Everything in the time that the address of the page names.
  async load() {
    const asked = view.forApi().toString();
    this.asked = asked;
    const found = await this.#fetched(asked);
    if (found && this.asked === asked) this.#show(found);
  }

  async #fetched(query) {
    try {
      const found = await series.fetchSeries(this.url, query);
      this.#say("");
      return found;
    } catch (error) {
      this.#say(say("The newest values could not be fetched."));
      return null;
    }
  }

  // The last steps once more, and those after them.
  #add(text) {
    if (!text || view.isZoomed() || !this.series) return;
    const newer = series.parsed(JSON.parse(text));
    const all = series.joined(this.series, newer, view.length(), POINTS);
    if (all) this.#show(all);
    else this.load();
  }

  #show(found) {
    const same = this.series && series.sameLines(this.series, found);
    this.series = found;
    const times = series.times(found);
    if (same) this.plots.forEach((plot) => plot.show(found.metrics.get(plot.metric.name), times));
    else this.#build(found, times);
    this.strip.setData([times, times.map(() => null)]);
    this.section.dataset.drawn = String(Number(this.section.dataset.drawn ?? 0) + 1);
    this.reset.hidden = !view.isZoomed();
  }

  #build(found, times) {
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    for (const figure of this.area.querySelectorAll("[data-metric]")) {
      const metric = found.metrics.get(figure.dataset.metric);
      figure.hidden = !metric;
      if (metric) this.plots.push(new Plot(figure, metric, times, this));
    }
  }

  // What happened, above the charts: signs, and the words of those at the cursor.
  #makeStrip() {
    const box = document.createElement("div");
    box.className = "chart-strip";
    const canvas = document.createElement("div");
    canvas.setAttribute("aria-hidden", "true");
    this.at = document.createElement("p");
    this.at.className = "small muted";
    this.reset = document.createElement("button");
    Object.assign(this.reset, { type: "button", className: "button small", textContent: say("Whole time"), hidden: true });
    this.reset.addEventListener("click", () => this.#zoom());
    box.append(canvas, this.at, this.reset);
    this.area.before(box);
    const options = {
      width: Math.max(canvas.clientWidth, 200),
      height: STRIP_PX,
      legend: { show: false },
      // The plots have their axis at the left: the strip has the same room there.
      padding: [0, 8, 0, 68],
      axes: [{ show: false }, { show: false }],
      scales: { x: { range: () => this.range() }, y: { range: [0, 1] } },
      cursor: { ...this.cursor, y: false },
      series: [{}, {}],
      hooks: {
        draw: [signs(this.marks, this.paint)],
        setCursor: [(u) => this.#tell(u)],
        setSelect: [(u) => this.select(u)],
      },
    };
    this.strip = new uPlot(options, [[0], [null]], canvas);
    this.canvas = canvas;
  }

  #tell(plot) {
    const { left } = plot.cursor;
    if (!this.series || left === undefined || left < 0) {
      this.#say("");
      return;
    }
    const words = near(plot, this.marks(), left);
    this.#say([moment(plot.posToVal(left, "x")), ...words].join(" · "));
  }

  #say(text) {
    if (this.at.textContent !== text) this.at.textContent = text;
  }

  // uPlot tells every chart of the group about a drag in one of them: the first one decides.
  select(plot) {
    const { left, width } = plot.select;
    if (width < 5 || !this.series) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (this.selecting) return;
    this.selecting = true;
    queueMicrotask(() => { this.selecting = false; });
    this.#zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  #zoom(from, to) {
    if (from === undefined) view.zoom();
    else {
      const middle = (from + to) / 2;
      const half = Math.max(to - from, SMALLEST_S) / 2;
      view.zoom(Math.floor(middle - half), Math.ceil(middle + half));
    }
    this.load();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.series || event.target.closest("select, input")) return;
    const [from, to] = this.range();
    const length = to - from;
    const { left } = this.strip.cursor;
    const middle = left >= 0 ? this.strip.posToVal(left, "x") : (from + to) / 2;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (["+", "="].includes(event.key)) this.#zoom(middle - length / 4, middle + length / 4);
    else if (event.key === "-" || event.key === "−") this.#zoom(middle - length, middle + length);
    else if (event.key === "0") this.#zoom();
    else if (side && event.shiftKey) this.#zoom(from + (side * length) / 4, to + (side * length) / 4);
    else if (side) this.#move(side);
    else return;
    event.preventDefault();
  }

  // The cursor goes to the next point, in all charts.
  #move(side) {
    const [plot] = this.plots;
    if (!plot) return;
    const { times } = plot;
    const now = plot.plot.cursor.idx ?? (side > 0 ? -1 : times.length);
    const next = Math.min(Math.max(now + side, 0), times.length - 1);
    plot.plot.setCursor({ left: plot.plot.valToPos(times[next], "x"), top: 20 }, true, true);
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    view.hide(this.hidden);
    for (const plot of this.plots) plot.switched();
  }

  #paint(name, part) {
    if (!this.colors.has(name)) this.colors.set(name, resolved(name));
    const found = this.colors.get(name);
    return part === 1 ? found : found.replace(/^rgb\((.*)\)$/, `rgb($1, ${part})`).replace("rgb(", "rgba(");
  }

  #recolor() {
    this.colors.clear();
    this.strip.redraw(false, true);
    for (const plot of this.plots) plot.redraw();
  }

  #resize() {
    this.strip.setSize({ width: Math.max(this.canvas.clientWidth, 200), height: STRIP_PX });
    for (const plot of this.plots) plot.resize();
  }
}

for (const section of document.querySelectorAll("#job-charts[data-url]")) {
  if (section.querySelector("[data-charts]")) new Board(section).start();
}
