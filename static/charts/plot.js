// One chart: its canvas by uPlot, its legend with switches, and its table.

import { lines as markLines } from "./marks.js";
import { moment, ticks, utc } from "./times.js";
import { say } from "../texts.js";
import { inWords, steps, top } from "./units.js";

const { uPlot } = window;
const HEIGHT = 150;
const COLORS = 8;
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const BANDS = { min: "smallest", median: "middle", max: "largest" };

// A line is one of a GPU, of a replica, or a band of all of them.
export function label(line) {
  if (line.gpu !== null) return `GPU ${line.gpu}`;
  if (line.replica) return line.replica;
  const words = { min: say("smallest"), median: say("middle"), max: say("largest") };
  return words[line.name] ?? line.name;
}

const isBand = (line) => !line.replica && line.name in BANDS;

export class Plot {
  // `board`: what all charts share: cursor key, colours, marks, hidden lines, zoom.
  constructor(figure, metric, times, board) {
    this.figure = figure;
    this.board = board;
    this.unit = metric.unit;
    this.box = figure.querySelector(".plot");
    this.words = this.box.querySelector("svg")?.getAttribute("aria-label") ?? "";
    this.legend = document.createElement("ul");
    this.legend.className = "chart-legend small";
    this.table = figure.querySelector("details");
    this.table?.addEventListener("toggle", () => this.#fillTable());
    this.#build(metric, times);
  }

  #build(metric, times) {
    this.metric = metric;
    this.times = times;
    const canvas = document.createElement("div");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", this.words || metric.name);
    this.box.replaceChildren(canvas);
    this.figure.insertBefore(this.legend, this.table);
    this.plot = new uPlot(this.#options(canvas), this.#data(), canvas);
    this.#fillLegend();
  }

  #data() {
    return [this.times, ...this.metric.lines.map((line) => line.values)];
  }

  #options(canvas) {
    const { board, metric, unit } = this;
    const shade = (name) => () => board.paint(name);
    const grid = { stroke: shade("--line"), width: 1 };
    const axis = { stroke: shade("--muted"), grid, ticks: grid, font: board.font };
    const range = (_, __, most) => [0, top(unit, most ?? 0)];
    const plain = metric.lines.length === 3 && metric.lines.every(isBand);
    return {
      width: Math.max(canvas.clientWidth, 200),
      height: HEIGHT,
      tzDate: board.dateOf,
      legend: { show: false },
      scales: { x: { range: () => board.range() }, y: { range } },
      cursor: { ...board.cursor, points: { size: 6 } },
      series: [{}, ...metric.lines.map((line, at) => this.#series(line, at, plain))],
      bands: plain ? [{ series: [3, 1], fill: () => board.paint("--live", 0.16) }] : [],
      axes: [
        { ...axis, size: 38, space: 70, values: (u, splits) => ticks(splits, u.scales.x.max - u.scales.x.min) },
        {
          ...axis,
          size: 68,
          space: 30,
          ...(steps(unit) ? { incrs: steps(unit) } : {}),
          values: (_, splits) => splits.map((value) => inWords(value, unit)),
        },
      ],
      hooks: {
        draw: [markLines(board.marks, board.paint)],
        setCursor: [() => this.#follow()],
        setSelect: [(u) => board.select(u)],
      },
    };
  }

  #series(line, at, plain) {
    const { board } = this;
    return {
      label: label(line),
      show: !board.hidden.has(label(line)),
      stroke: () => board.paint(plain ? "--live" : `--series-${(at % COLORS) + 1}`),
      width: plain && line.name !== "median" ? 1 : 1.6,
      dash: plain ? (line.name === "median" ? [] : [3, 3]) : DASHES[Math.floor(at / COLORS) % DASHES.length],
      spanGaps: false,
      points: { show: false, ...(this.times.length < 3 ? { show: true } : {}) },
    };
  }

  // New values of the same lines.
  show(metric, times) {
    this.metric = metric;
    this.times = times;
    this.plot.setData(this.#data());
    this.#follow();
    this.#fillTable();
  }

  resize() {
    const width = this.box.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  redraw() {
    this.plot.redraw(false, true);
  }

  destroy() {
    this.plot.destroy();
    this.legend.replaceChildren();
  }

  #fillLegend() {
    this.values = [];
    const items = this.metric.lines.map((line, at) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const value = document.createElement("span");
      button.type = "button";
      button.className = `plain swatch series-${isBand(line) ? "band" : (at % COLORS) + 1}`;
      button.textContent = label(line);
      button.setAttribute("aria-pressed", String(!this.board.hidden.has(label(line))));
      button.addEventListener("click", () => this.board.toggle(label(line)));
      this.values.push(value);
      item.append(button, value);
      return item;
    });
    this.legend.replaceChildren(...items);
    this.#follow();
  }

  // A line was switched on or off, here or in another chart.
  switched() {
    this.metric.lines.forEach((line, at) => {
      const shown = !this.board.hidden.has(label(line));
      if (this.plot.series[at + 1].show !== shown) this.plot.setSeries(at + 1, { show: shown });
      this.legend.children[at]?.firstChild.setAttribute("aria-pressed", String(shown));
    });
  }

  // The legend has the values at the cursor; without a cursor, the newest.
  #follow() {
    if (!this.plot || !this.values) return;
    const { idx } = this.plot.cursor;
    this.metric.lines.forEach((line, at) => {
      const value = idx === null || idx === undefined ? line.values.findLast((each) => each !== null) : line.values[idx];
      const text = inWords(value, this.unit);
      if (this.values[at] && this.values[at].textContent !== text) this.values[at].textContent = text;
    });
  }

  #fillTable() {
    if (!this.table?.open) return;
    const head = document.createElement("tr");
    head.append(...[say("Time"), ...this.metric.lines.map(label)].map((text) => cell("th", text)));
    const rows = this.times.map((at, index) => {
      const row = document.createElement("tr");
      const when = cell("th", moment(at));
      when.title = utc(at);
      row.append(when, ...this.metric.lines.map((line) => cell("td", inWords(line.values[index], this.unit))));
      return row;
    });
    this.table.querySelector("thead").replaceChildren(head);
    this.table.querySelector("tbody").replaceChildren(...rows.reverse());
  }
}

function cell(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (kind === "th") made.scope = "col";
  else made.className = "number";
  return made;
}
