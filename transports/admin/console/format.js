// @ts-check
// Values as text. All functions are pure.

const NONE = "–";
const UNITS = ["", "k", "M", "G", "T", "P"];

// Controls, and what turns the direction of text or is not seen: it could hide or forge a text.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/**
 * Return a text of a peer with its unseen characters written out.
 * @param {unknown} value
 */
export function visible(value) {
  return String(value ?? "").replace(UNSEEN, (each) => {
    const code = each.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/**
 * Return the start of a text that is longer than `most` characters.
 * @param {string} text
 * @param {number} most
 */
export function short(text, most = 80) {
  const whole = [...text];
  return whole.length > most ? `${whole.slice(0, most - 1).join("")}…` : text;
}

/** @param {number | null | undefined} value */
export function count(value) {
  return value == null ? NONE : Math.round(value).toLocaleString("en-GB").replaceAll(",", "\u202f");
}

/**
 * Return a number in three digits with the unit of its thousands.
 * @param {number | null | undefined} value
 */
export function brief(value) {
  return value == null ? NONE : scaled(value, 1000, UNITS);
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value == null) return NONE;
  return `${scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"])}${value < 1024 ? " " : ""}B`;
}

/**
 * @param {number} value
 * @param {number} base
 * @param {string[]} units
 */
function scaled(value, base, units) {
  let at = 0;
  while (Math.abs(value) >= base - 0.5 && at < units.length - 1) {
    value /= base;
    at += 1;
  }
  const shown = digits(value);
  return at ? `${shown} ${units[at]}` : shown;
}

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 99.95) return String(Math.round(value));
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

/**
 * Return a duration given in seconds.
 * @param {number | null | undefined} value
 */
export function seconds(value) {
  if (value == null) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 100) return `${digits(value)} s`;
  return span(value);
}

/**
 * Return a long duration, in its two largest units.
 * @param {number} value
 */
export function span(value) {
  const whole = Math.max(0, Math.floor(value));
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ]);
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([number], at) => at === 0 || number > 0)
    .map(([number, unit]) => `${number} ${unit}`)
    .join(" ");
}

/**
 * Return how long ago a time was, both in seconds since 1970.
 * @param {number | null | undefined} at
 * @param {number} now
 */
export function ago(at, now) {
  return at == null ? NONE : `${span(now - at)} ago`;
}

/** @param {number | null | undefined} share from 0 to 1 */
export function percent(share) {
  if (share == null) return NONE;
  const value = share * 100;
  // Not 100 % as long as something has failed, nor 0 % where something is.
  if (value > 99.9 && value < 100) return `${(Math.floor(value * 100) / 100).toFixed(2)} %`;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${digits(value)} %`;
}

/** @param {number | null | undefined} value by the second */
export function rate(value) {
  return value == null ? NONE : `${brief(value)}/s`;
}

/**
 * Return the time of a day, of a time in seconds since 1970.
 * @param {number} at
 */
export function clock(at) {
  const time = new Date(at * 1000);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** @param {number} at */
export function date(at) {
  return new Date(at * 1000).toISOString().slice(0, 10);
}

/**
 * Return a number with its noun.
 * @param {number} number
 * @param {string} noun
 */
export function counted(number, noun) {
  const plural = /(s|x|ch)$/.test(noun) ? `${noun}es` : noun.replace(/y$/, "ie") + "s";
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/**
 * Compare two values of a column: numbers and texts in their order, nothing last.
 * @param {unknown} one
 * @param {unknown} other
 */
export function compare(one, other) {
  if (one == null || other == null) return Number(one == null) - Number(other == null);
  if (typeof one === "string" || typeof other === "string") {
    return String(one).localeCompare(String(other), "en", { numeric: true });
  }
  return Number(one) - Number(other);
}

/**
 * Return rows in the order of a column. Equal rows stay in their order; nothing comes last.
 * @template T
 * @param {readonly T[]} rows
 * @param {(row: T) => unknown} value
 * @param {boolean} down
 */
export function ordered(rows, value, down) {
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    const by = compare(a, b);
    return down && a != null && b != null ? -by : by;
  });
}

/**
 * Return the query part of a path; fields without a value are left out.
 * @param {Record<string, string | number | null | undefined>} fields
 */
export function query(fields) {
  const given = Object.entries(fields).filter(([, value]) => value != null && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

/**
 * Return a quantile of the durations that came between two readings of a histogram, in seconds.
 * @param {number} share
 * @param {number[]} before
 * @param {number[]} now
 */
export function quantile(share, before, now) {
  const counts = now.map((value, at) => value - (before[at] ?? 0));
  const wanted = share * counts.reduce((sum, each) => sum + each, 0);
  let passed = 0;
  for (let at = 0; at < counts.length; at += 1) {
    const below = passed;
    passed += counts[at];
    if (counts[at] > 0 && passed >= wanted) {
      // The bounds are powers of two, from 64 microseconds on.
      const upper = 2 ** (at + 6) / 1e6;
      const lower = at ? upper / 2 : 0;
      return lower + ((upper - lower) * (wanted - below)) / counts[at];
    }
  }
  return null;
}
