/** The geometry of the picture of the levels: ribbons from the incoming requests to each level. Pure. */

import { LEVELS } from "./traffic.js";
import type { LevelName } from "./traffic.js";

export interface FlowSize {
  width: number;
  /** The centre of each level's row. */
  rows: Record<LevelName, number>;
  /** The thickness of all requests together. */
  thickness: number;
  /** The centre of the incoming requests. */
  source: number;
}

/** A ribbon: its outline, its centre line, and how many dots fit beside each other. */
export interface FlowRibbon {
  level: LevelName;
  outline: string;
  centre: string;
  thickness: number;
}

/** Minimum thickness, so that a ribbon is visible. */
const THICKNESS_MIN = 2;

export function flowRibbons(rates: Record<LevelName, number>, size: FlowSize): FlowRibbon[] {
  const total = LEVELS.reduce((sum, level) => sum + rates[level], 0);
  if (total <= 0) return [];
  const active = LEVELS.filter((level) => rates[level] > 0);
  const thickness = (level: LevelName) => Math.max(THICKNESS_MIN, (size.thickness * rates[level]) / total);
  const all = active.reduce((sum, level) => sum + thickness(level), 0);
  // The ribbon of the lowest level leaves the source at the bottom, so that ribbons do not cross.
  let bottom = size.source + all / 2;
  return active.map((level) => {
    const own = thickness(level);
    const [start, end] = [bottom - own / 2, size.rows[level]];
    bottom -= own;
    return { level, thickness: own, outline: outline(size.width, start, end, own), centre: curve(size.width, start, end) };
  });
}

function outline(width: number, start: number, end: number, thickness: number): string {
  const half = thickness / 2;
  const middle = width / 2;
  const to = (x1: number, y1: number, x2: number, y2: number, x: number, y: number) =>
    `C${fixed(x1)} ${fixed(y1)} ${fixed(x2)} ${fixed(y2)} ${fixed(x)} ${fixed(y)}`;
  return (
    `M0 ${fixed(start - half)}` +
    to(middle, start - half, middle, end - half, width, end - half) +
    `L${fixed(width)} ${fixed(end + half)}` +
    to(middle, end + half, middle, start + half, 0, start + half) +
    "Z"
  );
}

function curve(width: number, start: number, end: number): string {
  const middle = fixed(width / 2);
  return `M0 ${fixed(start)}C${middle} ${fixed(start)} ${middle} ${fixed(end)} ${fixed(width)} ${fixed(end)}`;
}

function fixed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

/** The path of a line through values, in a box of this size. */
export function sparkline(values: number[], width: number, height: number, max: number): string {
  if (values.length < 2 || max <= 0) return "";
  const x = (index: number) => fixed((index * width) / (values.length - 1));
  const y = (value: number) => fixed(height - 1 - (value / max) * (height - 3));
  return values.map((value, index) => `${index === 0 ? "M" : "L"}${x(index)} ${y(value)}`).join("");
}
