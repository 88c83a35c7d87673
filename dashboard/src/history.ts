/** The last half hour for the charts, with a point for each second. Pure. */

import { Distribution } from "./distribution.js";
import type { TrafficRates } from "./traffic.js";

/** The values of all charts at one time. */
export interface HistoryPoint {
  timeS: number;
  traffic: TrafficRates;
  bytes: number;
  durations: Distribution;
}

export const HISTORY_LENGTH_S = 1800;
/** Maximum number of points of a chart. */
const POINT_COUNT_MAX = 300;
/** Minimum span of a chart: one of ten seconds would change too fast to read. */
const SPAN_MIN_S = 60;

export class History {
  private points: HistoryPoint[] = [];

  push(point: HistoryPoint): void {
    this.points.push(point);
    while (point.timeS - (this.points[0]?.timeS ?? 0) > HISTORY_LENGTH_S) this.points.shift();
  }

  latest(): HistoryPoint | undefined {
    return this.points.at(-1);
  }

  /** The span that charts show: at most `spanS`, and less while the page is new. */
  range(spanS: number): [number, number] {
    const [first, last] = [this.points[0]?.timeS ?? 0, this.latest()?.timeS ?? 0];
    return [last - Math.min(spanS, Math.max(SPAN_MIN_S, last - first)), last];
  }

  /** The points of the last `spanS` seconds. Long spans are averaged over equal steps. */
  view(spanS: number): HistoryPoint[] {
    const [from] = this.range(spanS);
    const step = stepFor(spanS);
    const chosen = this.points.filter((point) => point.timeS >= from - step);
    if (step === 1) return chosen;
    const groups = new Map<number, HistoryPoint[]>();
    for (const point of chosen) {
      const start = Math.floor(point.timeS / step) * step;
      groups.set(start, [...(groups.get(start) ?? []), point]);
    }
    // The last step is incomplete, so its average would change with each snapshot.
    return [...groups.values()].slice(0, -1).map(average);
  }
}

/** Seconds between two points of a chart of this span. */
export function stepFor(spanS: number): number {
  return Math.max(1, Math.ceil(spanS / POINT_COUNT_MAX));
}

function average(points: HistoryPoint[]): HistoryPoint {
  const mean = (value: (point: HistoryPoint) => number) =>
    points.reduce((sum, point) => sum + value(point), 0) / points.length;
  const each = <K extends string>(record: (point: HistoryPoint) => Record<K, number>, keys: K[]) =>
    Object.fromEntries(keys.map((key) => [key, mean((point) => record(point)[key])])) as Record<K, number>;
  const durations = new Distribution();
  for (const point of points) durations.add(point.durations);
  return {
    timeS: mean((point) => point.timeS),
    bytes: mean((point) => point.bytes),
    durations,
    traffic: {
      total: mean((point) => point.traffic.total),
      hits: mean((point) => point.traffic.hits),
      lookups: mean((point) => point.traffic.lookups),
      levels: each((point) => point.traffic.levels, ["softirq", "worker", "handler", "origin"]),
      codes: each((point) => point.traffic.codes, ["2xx", "3xx", "4xx", "5xx"]),
    },
  };
}
