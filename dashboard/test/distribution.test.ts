import assert from "node:assert/strict";
import { test } from "node:test";

import { Distribution, bucketEnd } from "../src/distribution.js";
import { heatCells, heatRange } from "../src/heat_cells.js";

function of(values: number[]): Distribution {
  const buckets = new Map<number, number>();
  for (const value of values) {
    const index = Math.ceil(8 * Math.log2(value) - 1e-9);
    buckets.set(index, (buckets.get(index) ?? 0) + 1);
  }
  return Distribution.from({ count: values.length, sum: values.reduce((a, b) => a + b, 0), buckets: [...buckets] });
}

test("quantiles lie within a bucket of the exact ones", () => {
  const values = Array.from({ length: 1000 }, (_, index) => 0.001 * (1 + index));
  const distribution = of(values);
  for (const share of [0.01, 0.5, 0.9, 0.99, 0.999]) {
    const exact = values[Math.ceil(share * values.length) - 1]!;
    const found = distribution.quantile(share)!;
    assert.ok(found / exact < bucketEnd(1) && exact / found < bucketEnd(1), `${share}: ${found} for ${exact}`);
  }
});

test("quantiles never decrease, and an empty distribution has none", () => {
  assert.equal(new Distribution().quantile(0.5), null);
  const distribution = of([0.001, 0.001, 3]);
  const found = [0, 0.1, 0.5, 0.66, 0.67, 0.9, 1].map((share) => distribution.quantile(share)!);
  assert.deepEqual(found, [...found].sort((a, b) => a - b));
  assert.ok(found.at(-1)! <= bucketEnd(13));
});

test("difference of two snapshots has the durations between them", () => {
  const [before, added] = [of([0.1, 0.2]), of([0.2, 5])];
  const sum = of([0.1, 0.2, 0.2, 5]);
  const value = { count: before.count, sum: before.sum, buckets: [...before.counts] };
  sum.addScaled(value, -1);
  assert.deepEqual([...sum.counts].sort(), [...added.counts].sort());
  assert.equal(sum.count, 2);
  assert.ok(Math.abs(sum.sum - 5.2) < 1e-9);
});

test("cells extend to the previous column, and missing columns leave gaps", () => {
  const distribution = of([0.01]);
  const cells = heatCells([0, 1.2, 9].map((timeS) => ({ timeS, distribution })), 1);
  assert.deepEqual(cells.map(({ fromS, toS }) => [fromS, toS]), [[-1, 0], [0, 1.2], [8, 9]]);
  assert.ok(cells.every(({ from, to, weight }) => from < Math.log2(0.01) && Math.log2(0.01) <= to && weight === 1));
});

test("heat map covers at least the minimum range", () => {
  assert.equal(heatRange([]), null);
  const [from, to] = heatRange([{ timeS: 0, distribution: of([0.01]) }])!;
  assert.ok(to - from >= 7 && from < Math.log2(0.01) && to > Math.log2(0.01));
});
