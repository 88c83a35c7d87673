/** Rates from counters: the differences of the snapshots of the last seconds. */

import { Distribution } from "./distribution.js";
import { EVERY_SAMPLE, gauge, labelKey, numberOf, samples } from "./snapshot.js";
import type { LabelFilter, MetricLabels, MetricSample, Snapshot } from "./snapshot.js";

/** The growth of one series per second. */
export interface SeriesRate {
  labels: MetricLabels;
  perSecond: number;
}

/** The snapshots of the last seconds. */
export class SnapshotWindow {
  private snapshots: Snapshot[] = [];
  private readonly indices = new WeakMap<Snapshot, Map<string, Map<string, MetricSample>>>();

  constructor(private readonly lengthMs: number) {}

  /** Adds a snapshot. A server that has restarted counts from 0, so earlier snapshots are forgotten. */
  push(snapshot: Snapshot): void {
    const last = this.latest();
    if (last && (isRestart(last, snapshot) || snapshot.time_ms <= last.time_ms)) this.snapshots = [];
    this.snapshots.push(snapshot);
    // One snapshot at or before the window's beginning is kept, so that the window is covered completely.
    while (this.snapshots.length > 2 && snapshot.time_ms - this.snapshots[1]!.time_ms >= this.lengthMs) {
      this.snapshots.shift();
    }
  }

  latest(): Snapshot | undefined {
    return this.snapshots.at(-1);
  }

  /** Seconds between the first and the last snapshot; 0 before there are two. */
  seconds(): number {
    const [first, last] = [this.snapshots[0], this.latest()];
    return first && last ? (last.time_ms - first.time_ms) / 1000 : 0;
  }

  /** The rate of each series of a counter. */
  each(name: string): SeriesRate[] {
    const [first, last, seconds] = [this.snapshots[0], this.latest(), this.seconds()];
    if (!first || !last || seconds === 0) return [];
    const before = this.index(first, name);
    return samples(last, name).map((sample) => {
      const earlier = before.get(labelKey(sample.labels));
      const growth = numberOf(sample) - (earlier ? numberOf(earlier) : 0);
      return { labels: sample.labels, perSecond: Math.max(0, growth) / seconds };
    });
  }

  /** The rate of a counter, added up over its series. */
  rate(name: string, filter: LabelFilter = EVERY_SAMPLE): number {
    const chosen = this.each(name).filter((series) => filter(series.labels));
    return chosen.reduce((sum, series) => sum + series.perSecond, 0);
  }

  /** The durations recorded within the window. */
  durations(name: string, filter: LabelFilter = EVERY_SAMPLE): Distribution {
    const [first, last] = [this.snapshots[0], this.latest()];
    const result = new Distribution();
    if (!first || !last || first === last) return result;
    const before = this.index(first, name);
    for (const sample of samples(last, name)) {
      if (!filter(sample.labels) || typeof sample.value !== "object") continue;
      result.addScaled(sample.value, 1);
      const earlier = before.get(labelKey(sample.labels))?.value;
      if (typeof earlier === "object") result.addScaled(earlier, -1);
    }
    return result;
  }

  private index(snapshot: Snapshot, name: string): Map<string, MetricSample> {
    let families = this.indices.get(snapshot);
    if (!families) this.indices.set(snapshot, (families = new Map()));
    let family = families.get(name);
    if (!family) {
      family = new Map(samples(snapshot, name).map((sample) => [labelKey(sample.labels), sample]));
      families.set(name, family);
    }
    return family;
  }
}

/** Whether the later snapshot comes from another process. */
export function isRestart(before: Snapshot, after: Snapshot): boolean {
  const start = (snapshot: Snapshot) => gauge(snapshot, "process_start_time_seconds");
  const heads = (snapshot: Snapshot) => gauge(snapshot, "lowroad_request_heads_received") ?? 0;
  // Start times are computed from clock ticks, so those of one process may differ by rounding.
  const startsDiffer = Math.abs((start(before) ?? 0) - (start(after) ?? 0)) > 0.5;
  return startsDiffer || heads(after) < heads(before);
}
