// What happened, as marks: a line through every chart, and a strip above them with a sign for each.

import { moment } from "./times.js";

const TONES = { restart: "--warn", retry: "--warn", preempt: "--warn", drain: "--warn", cancel: "--bad" };
const ENDS = { FAILED: "--bad", SUCCEEDED: "--good", CANCELLED: "--bad" };
const SIGNS = { restart: "↻", retry: "↻", preempt: "⇤", drain: "⇥", cancel: "■", run: "•", state: "◆" };
const NEAR_PX = 6;

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "gray";
}

// A CSS colour with light-dark() is no colour for a canvas: an element says what it is now.
export function resolved(name) {
  const probe = document.createElement("span");
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const tone = (mark) => ENDS[mark.state] ?? TONES[mark.kind] ?? "--muted";

function each(plot, marks, draw) {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const mark of marks) {
    if (mark.at < min || mark.at > max) continue;
    draw(ctx, Math.round(plot.valToPos(mark.at, "x", true)) + 0.5, bbox, mark);
  }
  ctx.restore();
}

// `shown()` returns the marks; `paint(name)` a colour that a canvas understands.
export function lines(shown, paint) {
  return (plot) => each(plot, shown(), (ctx, x, box, mark) => {
    ctx.strokeStyle = paint(tone(mark));
    ctx.globalAlpha = 0.55;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, box.top);
    ctx.lineTo(x, box.top + box.height);
    ctx.stroke();
  });
}

export function signs(shown, paint) {
  return (plot) => each(plot, shown(), (ctx, x, box, mark) => {
    ctx.fillStyle = paint(tone(mark));
    ctx.font = `${14 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(SIGNS[mark.kind] ?? "•", x, box.top + box.height / 2);
  });
}

// The marks at the cursor, in words.
export function near(plot, marks, left) {
  const found = marks.filter((mark) => Math.abs(plot.valToPos(mark.at, "x") - left) <= NEAR_PX);
  return found.map((mark) => {
    const many = mark.count > 1 ? ` ×${mark.count}` : "";
    return `${moment(mark.at)} ${mark.subject} ${mark.state.toLowerCase()}${many}: ${mark.text}`;
  });
}
