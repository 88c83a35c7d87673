/** Distributions of durations: sums, differences and quantiles of sparse histograms. */

import type { DurationValue } from "./snapshot.js";

const BUCKETS_PER_OCTAVE = 8;

/** The upper bound of a bucket in seconds. */
export function bucketEnd(index: number): number {
  return 2 ** (index / BUCKETS_PER_OCTAVE);
}

export class Distribution {
  readonly counts = new Map<number, number>();
  count = 0;
  sum = 0;

  static from(value: DurationValue): Distribution {
    const made = new Distribution();
    made.addScaled(value, 1);
    return made;
  }

  /** Adds another distribution. */
  add(other: Distribution): void {
    this.addCounts(other.counts, other.count, other.sum, 1);
  }

  /** Adds (`factor` 1) or subtracts (-1) a sample of a snapshot. */
  addScaled(value: DurationValue, factor: 1 | -1): void {
    this.addCounts(value.buckets, value.count, value.sum, factor);
  }

  /** The quantile of a share, in seconds, interpolated within its bucket; `null` if there are no durations. */
  quantile(share: number): number | null {
    if (this.count <= 0) return null;
    const rank = share * this.count;
    let below = 0;
    let last: number | null = null;
    for (const index of this.indices()) {
      const here = this.counts.get(index) ?? 0;
      if (below + here >= rank) {
        // All buckets have the same width on a logarithmic scale.
        const part = here > 0 ? (rank - below) / here : 1;
        return 2 ** ((index - 1 + part) / BUCKETS_PER_OCTAVE);
      }
      below += here;
      last = index;
    }
    return last === null ? null : bucketEnd(last);
  }

  /** The buckets that have counts, ascending. */
  indices(): number[] {
    return [...this.counts.keys()].sort((a, b) => a - b);
  }

  private addCounts(buckets: Iterable<[number, number]>, count: number, sum: number, factor: 1 | -1): void {
    for (const [index, value] of buckets) {
      const next = (this.counts.get(index) ?? 0) + factor * value;
      if (next > 0) this.counts.set(index, next);
      else this.counts.delete(index);
    }
    this.count = Math.max(0, this.count + factor * count);
    this.sum = Math.max(0, this.sum + factor * sum);
  }
}
