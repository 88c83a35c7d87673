/** The list of problems that need an operator's attention, the most urgent first. */

import { certificates } from "./certificates_view.js";
import { arrange, byId, element } from "./dom.js";
import { percent } from "./format.js";
import { isOut, upstreamHealth } from "./origins_view.js";
import type { SnapshotWindow } from "./rates.js";
import { gauge } from "./snapshot.js";
import { scopeTraffic, sitesByLoad } from "./traffic.js";
import type { ScopeTraffic, TrafficRates } from "./traffic.js";

/** A problem, and the section of the page with the details. */
export interface Attention {
  text: string;
  section: string;
  isUrgent: boolean;
}

/** Share of failed responses from which on they are a problem, since single failures are normal. */
const FAILURE_SHARE = 0.01;
/** Maximum number of sites that are named. */
const SITE_COUNT_MAX = 3;

export function attention(window: SnapshotWindow, rates: TrafficRates): Attention[] {
  const snapshot = window.latest();
  if (!snapshot) return [];
  const found: Attention[] = [];
  for (const health of upstreamHealth(window)) {
    const { origin, server, isUp, isHalfOpen, why } = health;
    if (isUp !== false || isOut(health)) continue;
    const state = isHalfOpen ? "half-open" : "down";
    found.push({ text: `${origin}: ${server} is ${state}${why ? ` (${why})` : ""}`, section: "origins", isUrgent: !isHalfOpen });
  }
  const failures = rates.total > 0 ? rates.codes["5xx"] / rates.total : 0;
  if (failures > FAILURE_SHARE) {
    const sites = sitesByLoad(scopeTraffic(window)).map(({ site }) => site);
    found.push({ text: failureText(failures, sites), section: "sites", isUrgent: true });
  }
  for (const { names, trouble } of certificates(snapshot)) {
    if (trouble) found.push({ text: `Certificate of ${names}: ${trouble}`, section: "certificates", isUrgent: trouble === "has expired" });
  }
  if (window.rate("lowroad_log_lines_lost") > 0) {
    found.push({ text: "Log lines are lost: a disk or receiver is full, slow or unreachable", section: "machine", isUrgent: false });
  }
  const [files, most] = [gauge(snapshot, "process_open_fds"), gauge(snapshot, "process_max_fds")];
  if (files !== null && most !== null && files > 0.9 * most) {
    found.push({ text: "More than 90 % of the file descriptors are open", section: "machine", isUrgent: true });
  }
  return found.sort((a, b) => Number(b.isUrgent) - Number(a.isUrgent));
}

/** The share of failed responses, with the sites that they are from, the most failures first. */
export function failureText(share: number, sites: ScopeTraffic[]): string {
  const failing = sites.filter((site) => site.codes["5xx"] > FAILURE_SHARE * site.total);
  failing.sort((a, b) => b.codes["5xx"] - a.codes["5xx"]);
  const named = failing.slice(0, SITE_COUNT_MAX).map((site) => `${percent(site.codes["5xx"] / site.total)} of ${site.site || "requests for no site"}`);
  const others = failing.length - named.length;
  if (others > 0) named.push(`${others} other ${others === 1 ? "site" : "sites"}`);
  return `${percent(share)} of responses have a status of 5xx: ${named.join(", ")}`;
}

let shown = "";

/** Shows the list. Screen readers announce each change of this live region, so it is replaced only by a new list. */
export function showAttention(list: Attention[]): void {
  const key = JSON.stringify(list);
  if (key === shown) return;
  shown = key;
  const items = list.map(({ text, section, isUrgent }) =>
    element("li", { class: isUrgent ? "urgent" : "soon" }, element("a", { href: `#${section}` }, text)),
  );
  byId("attention").hidden = list.length === 0;
  arrange(byId("attention-list"), items);
}
