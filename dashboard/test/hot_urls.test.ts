import assert from "node:assert/strict";
import { test } from "node:test";

import { purgeObstacle, shownUrls } from "../src/hot_urls_view.js";
import type { HotUrl } from "../src/snapshot.js";

function hotUrl(path: string, rate: number, isCut = false): HotUrl {
  const url = `http://h${path}`;
  return { url, site: "h", host: "h", path, is_cut: isCut, level: "worker", levels: { worker: rate }, rate, error: 0, share: 0.5 };
}

test("a bounded number of URLs is shown", () => {
  const urls = Array.from({ length: 100 }, (_, index) => hotUrl(`/${index}`, 100 - index));
  assert.equal(shownUrls(urls, null).length, 25);
});

test("held rows stay, with their latest numbers", () => {
  const held = [hotUrl("/a", 5), hotUrl("/b", 4)];
  const shown = shownUrls([hotUrl("/new", 9), hotUrl("/b", 8)], held);
  assert.deepEqual(shown.map(({ path, rate }) => [path, rate]), [["/a", 0], ["/b", 8]]);
});

test("only whole URLs without a pattern can be purged from their row", () => {
  assert.equal(purgeObstacle(hotUrl("/a", 1)), null);
  assert.match(purgeObstacle(hotUrl("/*", 1))!, /asterisk/);
  assert.match(purgeObstacle(hotUrl("/a", 1, true))!, /longer/);
});
