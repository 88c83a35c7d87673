/** The table of sites and routes, the busiest first. */

import { byId } from "./dom.js";
import { amount, bytes, duration, percent } from "./format.js";
import type { SnapshotWindow } from "./rates.js";
import type { LabelFilter } from "./snapshot.js";
import { LiveTable } from "./table.js";
import type { CellContent, TableRow } from "./table.js";
import { DURATIONS, hitRatio, scopeTraffic, sitesByLoad } from "./traffic.js";
import type { ScopeTraffic } from "./traffic.js";

/** Maximum number of rows. The metrics contain all sites and routes. */
const ROW_COUNT_MAX = 40;

export class SitesView {
  private readonly table = new LiveTable(
    byId("sites-table"),
    "Sites and their routes with requests per second, the busiest first",
    [
      { title: "Site and route", class: "wide" },
      { title: "Requests/s", class: "number" },
      { title: "Cache hits", class: "number" },
      { title: "4xx", class: "number" },
      { title: "5xx", class: "number" },
      { title: "Median", class: "number" },
      { title: "p99", class: "number" },
      { title: "Body/s", class: "number" },
    ],
    "No requests yet.",
  );

  update(window: SnapshotWindow): void {
    const sites = sitesByLoad(scopeTraffic(window));
    const all = sites.reduce((sum, { site }) => sum + site.total, 0);
    const rows = sites.flatMap(({ site, routes }) => {
      const own = scopeRow(site, site.site || "no site", all, percentiles(window, (labels) => labels["site"] === site.site));
      // A site without routes has only its own row.
      const isPlain = routes.length === 1 && routes[0]!.route === "";
      const below = isPlain ? [] : routes.map((route) => ({ ...routeRow(window, route, all), class: "route" }));
      return [{ ...own, class: "site" }, ...below];
    });
    this.table.update(rows.slice(0, ROW_COUNT_MAX));
  }
}

/** Median and 99th percentile of the durations of some series. */
function percentiles(window: SnapshotWindow, filter: LabelFilter): [string, string] {
  const times = window.durations(DURATIONS, filter);
  return [duration(times.quantile(0.5)), duration(times.quantile(0.99))];
}

function routeRow(window: SnapshotWindow, route: ScopeTraffic, all: number): TableRow {
  const isOwn: LabelFilter = (labels) => labels["site"] === route.site && labels["route"] === route.route;
  return scopeRow(route, routeTitle(route.route), all, percentiles(window, isOwn));
}

function scopeRow(scope: ScopeTraffic, title: string | CellContent, all: number, times: [string, string]): TableRow {
  const failures = scope.codes["5xx"];
  return {
    key: `${scope.site}\n${scope.route}\n${typeof title === "string" ? "site" : "route"}`,
    cells: [
      title,
      { text: amount(scope.total), bar: all > 0 ? scope.total / all : 0 },
      percent(hitRatio(scope)),
      amount(scope.codes["4xx"]),
      { text: amount(failures), state: failures > 0 ? "bad" : undefined },
      ...times,
      bytes(scope.bytes),
    ],
  };
}

/** A route's pattern, with its handler as a note: `/api/** to origin app`. */
function routeTitle(route: string): CellContent {
  if (route === "") return { text: "files and rules" };
  const [, pattern, target] = /^(\S+) (.*)$/.exec(route) ?? [];
  return pattern && target ? { text: pattern, note: target } : { text: route };
}
