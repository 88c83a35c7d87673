import assert from "node:assert/strict";
import { test } from "node:test";

import { amount, bytes, counted, duration, fromNow, grouped, percent, span } from "../src/format.js";

test("amounts have three digits at most, or thousands", () => {
  const shown = [null, 0, 0.004, 0.42, 7.26, 9.96, 128.4, 1284, 12_440, 999_499, 3.1e6, 2e9].map(amount);
  assert.deepEqual(shown, ["–", "0", "<0.01", "0.42", "7.3", "10", "128", "1,284", "12 k", "999 k", "3.1 M", "2.0 G"]);
});

test("whole numbers are grouped", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
  assert.equal(counted(1, "worker"), "1 worker");
  assert.equal(counted(2000, "worker"), "2,000 workers");
});

test("rounding gives neither 0 % nor 100 %", () => {
  assert.deepEqual([0, 0.0001, 0.5, 0.9999, 1, null].map(percent), ["0 %", "<0.1 %", "50.0 %", ">99.9 %", "100 %", "–"]);
});

test("durations and sizes choose their unit", () => {
  assert.deepEqual([0.000_012_3, 0.000_999_9, 0.0157, 0.9999, 12.3].map(duration), ["12 µs", "1.00 ms", "16 ms", "1.00 s", "12 s"]);
  assert.deepEqual([0, 999, 999.9, 1500, 2.5e6, 3e9].map(bytes), ["0 B", "999 B", "1.00 kB", "1.50 kB", "2.5 MB", "3.0 GB"]);
});

test("spans are in their largest units", () => {
  assert.deepEqual([0, 59, 61, 3600, 12_060, 90_000, 1e6].map(span), ["0 s", "59 s", "1 min", "1 h", "3 h 21 min", "25 h", "11 days"]);
  assert.equal(fromNow(-120), "2 min ago");
  assert.equal(fromNow(864_000), "in 10 days");
});
