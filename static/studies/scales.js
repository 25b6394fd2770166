// The place of a value on an axis, from 0 to 1, and the value at a place: as axes.py draws them.

const LOG = "UNIT_LOG_SCALE";
const REVERSE = "UNIT_REVERSE_LOG_SCALE";

const inside = (place) => Math.min(Math.max(place, 0), 1);

export function textAt(own, place) {
  if (own.values.length) return own.values[Math.round(inside(place) * (own.values.length - 1))];
  const value = valueAt(own, inside(place));
  return String(own.whole ? Math.round(value) : Number(value.toPrecision(4)));
}

function valueAt({ low, high, scale }, place) {
  const ratio = Math.log(high) - Math.log(low);
  if (scale === LOG) return Math.exp(Math.log(low) + place * ratio);
  if (scale === REVERSE) return low + high - Math.exp(Math.log(high) - place * ratio);
  // Halves first: the distance of two huge numbers is no number.
  return low + 2 * (place * (high / 2 - low / 2));
}

// NaN for a text that is no value.
export function placeOf(own, text) {
  const index = own.values.indexOf(text);
  if (own.values.length) return index < 0 ? NaN : index / Math.max(own.values.length - 1, 1);
  const value = Math.min(Math.max(Number(text), own.low), own.high);
  const { low, high, scale } = own;
  if (low === high) return 0.5;
  const ratio = Math.log(high) - Math.log(low);
  if (scale === LOG) return inside((Math.log(value) - Math.log(low)) / ratio);
  if (scale === REVERSE) return inside((Math.log(high) - Math.log(Math.max(high - (value - low), low))) / ratio);
  return inside((value / 2 - low / 2) / (high / 2 - low / 2));
}

// By how much a key moves an end.
export function stepOf(own) {
  if (own.values.length > 1) return 1 / (own.values.length - 1);
  return own.whole ? Math.max(1 / Math.max(own.high - own.low, 1), 0.01) : 0.01;
}
