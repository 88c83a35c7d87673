import assert from "node:assert/strict";
import { test } from "node:test";

import { SnapshotWindow } from "../src/rates.js";
import type { Snapshot } from "../src/snapshot.js";
import { REQUESTS, hitRatio, scopeTraffic, sitesByLoad, trafficRates } from "../src/traffic.js";

const LABELS = { site: "a", route: "", level: "worker", outcome: "hit", code_class: "2xx" };

function snapshot(timeS: number, counts: Record<string, number>, startS = 1): Snapshot {
  const samples = Object.entries(counts).map(([outcome, value]) => ({ labels: { ...LABELS, outcome }, value }));
  return {
    time_ms: 1000 * timeS,
    metrics: {
      [REQUESTS]: { type: "counter", samples },
      process_start_time_seconds: { type: "gauge", samples: [{ labels: {}, value: startS }] },
    },
  };
}

test("rates are the growth over the window", () => {
  const window = new SnapshotWindow(5000);
  window.push(snapshot(0, { hit: 1000 }));
  assert.equal(window.rate(REQUESTS), 0);
  for (let timeS = 1; timeS <= 20; timeS++) window.push(snapshot(timeS, { hit: 1000 + 10 * timeS }));
  assert.equal(window.seconds(), 5);
  assert.equal(window.rate(REQUESTS), 10);
});

test("new series counts from 0", () => {
  const window = new SnapshotWindow(5000);
  window.push(snapshot(0, { hit: 100 }));
  window.push(snapshot(2, { hit: 100, miss: 6 }));
  assert.equal(window.rate(REQUESTS), 3);
  assert.equal(window.rate(REQUESTS, ({ outcome }) => outcome === "hit"), 0);
});

test("restart resets the window, without negative rates", () => {
  const window = new SnapshotWindow(5000);
  window.push(snapshot(0, { hit: 100 }));
  window.push(snapshot(1, { hit: 200 }));
  window.push(snapshot(2, { hit: 7 }, 2));
  assert.equal(window.rate(REQUESTS), 0);
  window.push(snapshot(3, { hit: 9 }, 2));
  assert.equal(window.rate(REQUESTS), 2);
});

test("a clock that is set back does not divide by zero", () => {
  const window = new SnapshotWindow(5000);
  window.push(snapshot(5, { hit: 100 }));
  window.push(snapshot(5, { hit: 200 }));
  window.push(snapshot(3, { hit: 300 }));
  assert.equal(window.rate(REQUESTS), 0);
});

test("uncacheable responses do not count for the hit ratio", () => {
  const one = (outcome: string, level: string, perSecond: number) => ({ labels: { ...LABELS, outcome, level }, perSecond });
  const rates = trafficRates([one("hit", "worker", 6), one("stale", "worker", 1), one("miss", "origin", 2), one("revalidated", "origin", 1), one("pass", "origin", 100), one("made", "handler", 5)]);
  assert.equal(hitRatio(rates), 0.7);
  assert.equal(rates.total, 115);
  assert.deepEqual(rates.levels, { softirq: 0, worker: 7, handler: 5, origin: 103 });
  assert.equal(hitRatio(trafficRates([])), null);
});

test("the level below the server is added", () => {
  const rates = trafficRates([{ labels: LABELS, perSecond: 10 }], 30);
  assert.equal(rates.total, 40);
  assert.equal(rates.levels.softirq, 30);
  assert.equal(rates.codes["2xx"], 40);
});

test("sites and routes are sorted by load", () => {
  const window = new SnapshotWindow(5000);
  const at = (timeS: number, factor: number): Snapshot => {
    const one = (site: string, route: string, perSecond: number) => ({ labels: { ...LABELS, site, route }, value: factor * perSecond });
    const samples = [one("a", "", 1), one("b", "/x", 2), one("b", "/y", 5)];
    return { time_ms: 1000 * timeS, metrics: { [REQUESTS]: { type: "counter", samples } } };
  };
  window.push(at(0, 0));
  window.push(at(1, 1));
  const sites = sitesByLoad(scopeTraffic(window));
  assert.deepEqual(sites.map(({ site }) => [site.site, site.total]), [["b", 7], ["a", 1]]);
  assert.deepEqual(sites[0]!.routes.map(({ route }) => route), ["/y", "/x"]);
});
