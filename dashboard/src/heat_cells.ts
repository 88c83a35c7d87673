/** The cells of a heat map of durations. Pure. */

import type { Distribution } from "./distribution.js";

export interface HeatColumn {
  timeS: number;
  distribution: Distribution;
}

/** A cell: the durations between two exponents of 2, in seconds, and its weight from 0 to 1. */
export interface HeatCell {
  fromS: number;
  toS: number;
  from: number;
  to: number;
  weight: number;
}

/** Two buckets a cell: a quarter of an octave, or 19 %. */
const BUCKETS_PER_CELL = 2;
const CELLS_PER_OCTAVE = 8 / BUCKETS_PER_CELL;
/** Minimum weight, so that single requests are visible next to thousands. */
const WEIGHT_MIN = 0.1;
/** The shortest range of exponents. */
const RANGE_MIN = 7;

/** `stepS`: the usual time between two columns. A column extends back to the previous one, without gaps. */
export function heatCells(columns: HeatColumn[], stepS: number): HeatCell[] {
  const cells = columns.flatMap(({ timeS, distribution }, index) => {
    const before = columns[index - 1]?.timeS ?? -Infinity;
    const fromS = timeS - before < 2 * stepS ? before : timeS - stepS;
    return [...countByCell(distribution)].map(([cell, count]) => ({ fromS, toS: timeS, cell, count }));
  });
  const max = cells.reduce((most, { count }) => Math.max(most, count), 1);
  return cells.map(({ fromS, toS, cell, count }) => ({
    fromS,
    toS,
    from: (cell - 1) / CELLS_PER_OCTAVE,
    to: cell / CELLS_PER_OCTAVE,
    // The square root makes rare durations visible without a logarithmic scale, which 0 would not fit on.
    weight: WEIGHT_MIN + (1 - WEIGHT_MIN) * Math.sqrt(count / max),
  }));
}

/** The exponents between which the durations lie; `null` without any. */
export function heatRange(columns: HeatColumn[]): [number, number] | null {
  let [least, most] = [Infinity, -Infinity];
  for (const { distribution } of columns) {
    for (const index of distribution.counts.keys()) {
      least = Math.min(least, index);
      most = Math.max(most, index);
    }
  }
  if (least > most) return null;
  const [from, to] = [Math.floor(least / 8 - 0.5), Math.ceil(most / 8 + 0.5)];
  const missing = Math.max(0, RANGE_MIN - (to - from));
  return [from - Math.floor(missing / 2), to + Math.ceil(missing / 2)];
}

function countByCell(distribution: Distribution): Map<number, number> {
  const cells = new Map<number, number>();
  for (const [index, count] of distribution.counts) {
    const cell = Math.ceil(index / BUCKETS_PER_CELL);
    cells.set(cell, (cells.get(cell) ?? 0) + count);
  }
  return cells;
}
