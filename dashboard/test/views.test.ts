import assert from "node:assert/strict";
import { test } from "node:test";

import { Distribution } from "../src/distribution.js";
import { flowRibbons, sparkline } from "../src/flow.js";
import { History, stepFor } from "../src/history.js";
import { RelayFeed } from "../src/relay_state.js";
import { attention, failureText } from "../src/attention.js";
import { SnapshotWindow } from "../src/rates.js";
import { trafficRates } from "../src/traffic.js";
import { purgeText } from "../src/url_tool.js";

const SIZE = { width: 200, rows: { origin: 20, handler: 60, worker: 100, softirq: 140 }, thickness: 50, source: 120 };

test("failures name their sites, the most failures first", () => {
  const site = (name: string, failures: number, total: number) => {
    const part = (code: string, perSecond: number) => ({ labels: { level: "worker", outcome: "hit", code_class: code }, perSecond });
    return { ...trafficRates([part("5xx", failures), part("2xx", total - failures)]), site: name, route: "", bytes: 0 };
  };
  const sites = [site("good", 0, 100), site("bad", 5, 100), site("", 8, 10), site("fine", 1, 1000)];
  assert.equal(failureText(0.0116, sites), "1.2 % of responses have a status of 5xx: 80.0 % of requests for no site, 5.0 % of bad");
  const many = ["a", "b", "c", "d", "e"].map((name) => site(name, 1, 10));
  assert.equal(failureText(0.1, many), "10.0 % of responses have a status of 5xx: 10.0 % of a, 10.0 % of b, 10.0 % of c, 2 other sites");
});

test("servers that an operator keeps out need no attention", () => {
  const servers = ["ready", "drain", "down", "force"];
  const family = (value: number) => ({ type: "gauge" as const, samples: servers.map((server) => ({ labels: { origin: "app", server }, value })) });
  const window = new SnapshotWindow(5000);
  window.push({
    time_ms: 0,
    metrics: { lowroad_upstream_connections_idle: family(0), lowroad_upstream_up: family(0) },
    upstreams: servers.map((server) => ({ origin: "app", server, state: server, health: "down", latest_failure: null })),
  });
  const found = attention(window, trafficRates([]));
  assert.deepEqual(found.map(({ text }) => text), ["app: ready is down", "app: force is down"]);
});

test("a purge says how many responses it removed", () => {
  assert.equal(purgeText("purged 80 responses=0", false), "Nothing was purged: no stored response matched. Responses being fetched now will not be reused.");
  assert.equal(purgeText("purged 80 responses=1\n", false), "1 stored response was purged.");
  assert.equal(purgeText("purged responses=2", true), "2 stored responses were made stale.");
  assert.match(purgeText("purged-for-now 80", false), /not counted\. After a restart/);
});

test("ribbons have the thickness of their share, and do not cross", () => {
  const ribbons = flowRibbons({ softirq: 70, worker: 20, handler: 0, origin: 10 }, SIZE);
  assert.deepEqual(ribbons.map(({ level, thickness }) => [level, thickness]), [["softirq", 35], ["worker", 10], ["origin", 5]]);
  const starts = ribbons.map(({ centre }) => Number(/^M0 (\S+)C/.exec(centre)![1]));
  assert.deepEqual(starts, [127.5, 105, 97.5]);
  assert.deepEqual(flowRibbons({ softirq: 0, worker: 0, handler: 0, origin: 0 }, SIZE), []);
});

test("ribbon of few requests has the minimum thickness", () => {
  const ribbons = flowRibbons({ softirq: 1e6, worker: 0, handler: 0, origin: 1 }, SIZE);
  assert.equal(ribbons.at(-1)!.thickness, 2);
});

test("a sparkline stays in its box", () => {
  assert.equal(sparkline([], 100, 20, 1), "");
  assert.equal(sparkline([0, 5, 10], 100, 20, 10), "M0 19L50 10.5L100 2");
});

function history(seconds: number): History {
  const made = new History();
  for (let timeS = 0; timeS < seconds; timeS++) {
    const traffic = trafficRates([{ labels: { level: "worker", outcome: "hit", code_class: "2xx" }, perSecond: timeS }]);
    const durations = Distribution.from({ count: 1, sum: 1, buckets: [[0, 1]] });
    made.push({ timeS, traffic, bytes: 1, durations });
  }
  return made;
}

test("a new chart shows a minute and grows", () => {
  assert.deepEqual(history(10).range(300), [-51, 9]);
  assert.deepEqual(history(200).range(300), [0, 199]);
  assert.deepEqual(history(1000).range(300), [699, 999]);
});

test("a long span is averaged, and keeps its durations", () => {
  const points = history(1000).view(1800);
  assert.equal(stepFor(1800), 6);
  assert.equal(points.length, 166);
  assert.equal(points[1]!.traffic.total, 8.5);
  assert.equal(points[1]!.durations.count, 6);
});

test("history is bounded", () => {
  assert.ok(history(5000).view(300).length <= 302);
  assert.equal(history(5000).range(1e9)[0], 3199);
});

test("rate of the softirq level starts from 0 when the level is attached again", () => {
  const feed = new RelayFeed("");
  const take = (requests: number, timeMs: number) =>
    feed.take({ is_read_only: false, levels: [{ ports: [80], interfaces: [], mode: "serving", trouble: null, published: { now: 0, places: 1 }, shares: { answered: { requests, bytes: 10 * requests } } }] }, timeMs);
  take(1000, 0);
  assert.equal(feed.isSettled(), false);
  take(1200, 2000);
  assert.deepEqual(feed.rates(), { requests: 100, bytes: 1000 });
  take(5, 4000);
  assert.deepEqual(feed.rates(), { requests: 0, bytes: 0 });
  take(25, 6000);
  assert.equal(feed.rates().requests, 10);
});
