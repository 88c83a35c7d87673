/** Computes the traffic by level, cache outcome and status code from the counters of requests. Pure. */

import type { Distribution } from "./distribution.js";
import type { SeriesRate, SnapshotWindow } from "./rates.js";

/** The levels, lowest first. */
export const LEVELS = ["softirq", "worker", "handler", "origin"] as const;
export type LevelName = (typeof LEVELS)[number];

/** Classes of status codes that are shown. */
export const CODE_CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;
export type CodeClass = (typeof CODE_CLASSES)[number];

export const REQUESTS = "lowroad_requests";
export const DURATIONS = "lowroad_request_duration_seconds";
export const BODY_BYTES = "lowroad_response_body_bytes";

/** Requests per second, divided in several ways. */
export interface TrafficRates {
  total: number;
  levels: Record<LevelName, number>;
  codes: Record<CodeClass, number>;
  hits: number;
  lookups: number;
}

/** Rates of requests per second. `softirq`: those of the level below, which the server's counters do not include. */
export function trafficRates(series: SeriesRate[], softirq = 0): TrafficRates {
  const rates: TrafficRates = {
    total: softirq,
    levels: { softirq, worker: 0, handler: 0, origin: 0 },
    codes: { "2xx": softirq, "3xx": 0, "4xx": 0, "5xx": 0 },
    hits: softirq,
    lookups: softirq,
  };
  for (const { labels, perSecond } of series) {
    rates.total += perSecond;
    const level = labels["level"] as LevelName;
    if (level in rates.levels) rates.levels[level] += perSecond;
    const code = labels["code_class"] as CodeClass;
    if (code in rates.codes) rates.codes[code] += perSecond;
    const cache = cacheUse(labels["outcome"] ?? "");
    if (cache !== "none") rates.lookups += perSecond;
    if (cache === "hit") rates.hits += perSecond;
  }
  return rates;
}

/** Whether a response came from the cache. Generated and uncacheable responses do not count. */
function cacheUse(outcome: string): "hit" | "miss" | "none" {
  switch (outcome) {
    case "hit":
    case "stale":
      return "hit";
    case "miss":
    case "revalidated":
      return "miss";
    default:
      return "none";
  }
}

/** The share of look-ups that were hits; `null` without look-ups. */
export function hitRatio(rates: Pick<TrafficRates, "hits" | "lookups">): number | null {
  return rates.lookups > 0 ? rates.hits / rates.lookups : null;
}

/** Durations of a level's requests. */
export function levelDurations(window: SnapshotWindow, level: LevelName): Distribution {
  return window.durations(DURATIONS, (labels) => labels["level"] === level);
}

const SOFTIRQ_ANSWERS = "lowroad_softirq_answers";

/** The level below the server. */
export interface SoftirqRates {
  requests: number;
  bytes: number;
}

/** The requests that the server's own softirq level answers; `null` if it has none. */
export function softirqRates(window: SnapshotWindow): SoftirqRates | null {
  if (!window.latest()?.metrics[SOFTIRQ_ANSWERS]) return null;
  return {
    // A retransmitted response does not count as another request.
    requests: window.rate(SOFTIRQ_ANSWERS, (labels) => labels["reason"] === "hit"),
    bytes: window.rate("lowroad_softirq_answered_bytes"),
  };
}

/** A site, or one of its routes. */
export interface ScopeTraffic extends TrafficRates {
  site: string;
  route: string;
  bytes: number;
}

/** The traffic of each route, and with `route` "" that outside of routes. */
export function scopeTraffic(window: SnapshotWindow): ScopeTraffic[] {
  const key = (series: SeriesRate) => `${series.labels["site"] ?? ""}\n${series.labels["route"] ?? ""}`;
  const requests = groupBy(window.each(REQUESTS), key);
  const bytes = groupBy(window.each(BODY_BYTES), key);
  const scopes: ScopeTraffic[] = [];
  for (const [name, series] of requests) {
    const [site = "", route = ""] = name.split("\n");
    const body = (bytes.get(name) ?? []).reduce((sum, one) => sum + one.perSecond, 0);
    scopes.push({ ...trafficRates(series), site, route, bytes: body });
  }
  return scopes;
}

/** Adds up the routes of each site; sites and routes with the most requests come first. */
export function sitesByLoad(scopes: ScopeTraffic[]): { site: ScopeTraffic; routes: ScopeTraffic[] }[] {
  const byLoad = (a: ScopeTraffic, b: ScopeTraffic) => b.total - a.total || a.route.localeCompare(b.route);
  const sites = [...groupBy(scopes, (scope) => scope.site)].map(([name, routes]) => ({
    site: routes.reduce(sumScopes, emptyScope(name)),
    routes: routes.sort(byLoad),
  }));
  return sites.sort((a, b) => b.site.total - a.site.total || a.site.site.localeCompare(b.site.site));
}

function emptyScope(site: string): ScopeTraffic {
  return { ...trafficRates([]), site, route: "", bytes: 0 };
}

function sumScopes(sum: ScopeTraffic, part: ScopeTraffic): ScopeTraffic {
  const add = <K extends string>(a: Record<K, number>, b: Record<K, number>) =>
    Object.fromEntries(Object.entries<number>(a).map(([name, value]) => [name, value + b[name as K]])) as Record<K, number>;
  return {
    site: sum.site,
    route: "",
    total: sum.total + part.total,
    hits: sum.hits + part.hits,
    lookups: sum.lookups + part.lookups,
    bytes: sum.bytes + part.bytes,
    levels: add(sum.levels, part.levels),
    codes: add(sum.codes, part.codes),
  };
}

export function groupBy<T>(items: T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const name = key(item);
    const group = groups.get(name);
    if (group) group.push(item);
    else groups.set(name, [item]);
  }
  return groups;
}
