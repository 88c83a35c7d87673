/** Formats numbers, times and names for display. Pure. */

/** The sign for a value that does not exist. */
export const NONE = "–";

/** A rate or count with three significant digits: 0.42, 7.3, 128, 1,284, 12.4 k, 3.1 M. */
export function amount(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  if (value < 1) return value.toFixed(2);
  if (value < 9.95) return value.toFixed(1);
  if (value < 9999.5) return grouped(Math.round(value));
  if (value < 999_500) return `${short(value / 1e3)} k`;
  if (value < 999.5e6) return `${short(value / 1e6)} M`;
  return `${short(value / 1e9)} G`;
}

/** A whole number with separators of thousands. */
export function grouped(value: number | null): string {
  if (value === null) return NONE;
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Bytes with decimal units, as usual for networks and disks. */
export function bytes(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return NONE;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const) {
    if (value >= 0.9995 * size) return `${short(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

/** A share from 0 to 1 in percent. Rounding never gives 0 % or 100 %: these are exact. */
export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return NONE;
  if (share === 0) return "0 %";
  if (share === 1) return "100 %";
  if (share < 0.001) return "<0.1 %";
  if (share > 0.999) return ">99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** Formats a duration in seconds with a suitable unit. */
export function duration(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0.000_999_5) return `${short(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${short(seconds * 1e3)} ms`;
  return `${short(seconds)} s`;
}

/** A span of time in its largest unit or two: 42 s, 7 min, 3 h 20 min, 12 days. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  if (hours < 10) return minutes > 0 ? `${hours} h ${minutes} min` : `${hours} h`;
  if (hours < 48) return `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

/** A point in time that lies `seconds` ahead, or behind if negative. */
export function fromNow(seconds: number): string {
  return seconds < 0 ? `${span(-seconds)} ago` : `in ${span(seconds)}`;
}

/** A date without its time, in the reader's time zone. */
export function date(unixSeconds: number): string {
  const day = new Date(unixSeconds * 1000);
  const two = (value: number) => value.toString().padStart(2, "0");
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** The time of a day, in the reader's time zone. */
export function timeOfDay(unixMs: number): string {
  const time = new Date(unixMs);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => part.toString().padStart(2, "0")).join(":");
}

/** `1 worker`, `2 workers`. */
export function counted(count: number, noun: string): string {
  return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Three significant digits without an exponent. */
function short(value: number): string {
  if (value < 9.995) return value.toFixed(value < 0.9995 ? 2 : value < 1.9995 ? 2 : 1);
  return grouped(value);
}
