// Numbers with their units, for ticks, legends and tables: 93 %, 61 GiB, 640 W, 1.25 MB/s.

const KIBI = 1024;

function digits(value) {
  return Number(value.toPrecision(3)).toString();
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value >= 1000 ? Math.round(value) : digits(value)} ${units[at]}/s`;
}

export function inWords(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "percent") return `${Math.round(value)} %`;
  if (unit === "B/s") return bytes(value);
  if (unit === "MiB") return value < KIBI ? `${Math.round(value)} MiB` : `${digits(value / KIBI)} GiB`;
  if (unit === "CPUs") return digits(value);
  return `${Math.round(value)} ${unit}`;
}

// Between which numbers ticks may stand: powers of two for memory, so that they are whole GiB.
export function steps(unit) {
  if (unit !== "MiB") return undefined;
  return Array.from({ length: 34 }, (_, power) => 2 ** power);
}

// The highest value of the axis: percents always reach 100.
export function top(unit, most) {
  if (unit === "percent") return 100;
  return most > 0 ? most * 1.08 : 1;
}
