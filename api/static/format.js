// Figures and times as people read them; a dash where nothing is known.

const NONE = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export function number(value) {
  if (!known(value)) return NONE;
  return Math.abs(value) < 100 ? tenths.format(value) : whole.format(value);
}

/** Few characters, for axes. */
export function short(value) {
  return known(value) ? digits.format(value) : NONE;
}

export function rate(value) {
  return known(value) ? `${number(value)}/s` : NONE;
}

export function bytes(value) {
  if (!known(value)) return NONE;
  let left = value;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (Math.abs(left) < 1024) return `${number(left)} ${unit}`;
    left /= 1024;
  }
  return `${number(left)} GiB`;
}

const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
];

export function duration(ms) {
  if (!known(ms)) return NONE;
  const size = Math.abs(ms);
  const exact = UNITS.find(([unit]) => size >= unit && size % unit === 0);
  if (exact) return `${number(ms / exact[0])} ${exact[1]}`;
  if (size < 1_000) return `${whole.format(ms)} ms`;
  if (size < 120_000) return `${tenths.format(ms / 1_000)} s`;
  if (size < 7_200_000) return `${tenths.format(ms / 60_000)} min`;
  if (size < 172_800_000) return `${tenths.format(ms / 3_600_000)} h`;
  return `${number(ms / 86_400_000)} d`;
}

/** A time in UTC to the second, as the command line writes it. */
export function clock(ms) {
  if (!known(ms)) return NONE;
  const time = new Date(ms);
  if (Number.isNaN(time.getTime())) return String(ms);
  return time.toISOString().slice(0, -5).replace("T", " ");
}

/** The same without its day. */
export function hour(ms) {
  return known(ms) ? clock(ms).slice(-8) : NONE;
}

/** A number of things: `1 group`, `2 groups`. */
export function some(count, thing) {
  return `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
}

export function percent(share) {
  if (!known(share)) return NONE;
  return share === 0 ? "none" : `${digits.format(Math.max(share * 100, 0.01))} %`;
}

/** Any value of a result row. */
export function value(item) {
  if (item === null || item === undefined) return "NULL";
  if (typeof item === "number")
    return Number.isInteger(item) ? item.toLocaleString("en") : String(item);
  return String(item);
}
