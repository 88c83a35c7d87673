/** The table of upstream servers: health with its reason, requests and connections. */

import { byId } from "./dom.js";
import { amount, duration, grouped } from "./format.js";
import type { SnapshotWindow } from "./rates.js";
import { gauge, samples } from "./snapshot.js";
import type { MetricLabels, Snapshot } from "./snapshot.js";
import { LiveTable } from "./table.js";
import type { CellContent, TableRow } from "./table.js";

const UPSTREAM = "lowroad_upstream_";

/** The health of an upstream server. */
export interface UpstreamHealth {
  origin: string;
  server: string;
  /** The operator's decision: `ready`, `drain`, `down` or `force`. */
  state: string;
  /** `null` for a single server, which always gets requests. */
  isUp: boolean | null;
  /** Whether the circuit breaker is half-open: the result of a trial request decides. `isUp` is false then. */
  isHalfOpen: boolean;
  /** The reason in words. */
  why: string;
  failuresPerSecond: number;
  /** Whether there are more than single failures. */
  isFailing: boolean;
}

/** Share of failed responses from which on they are a problem, since single failures are normal. */
const FAILURE_SHARE = 0.05;

export function upstreamHealth(window: SnapshotWindow): UpstreamHealth[] {
  const snapshot = window.latest();
  if (!snapshot) return [];
  return samples(snapshot, `${UPSTREAM}connections_idle`).map(({ labels }) => {
    const up = gauge(snapshot, `${UPSTREAM}up`, same(labels));
    const note = snapshot.upstreams?.find((one) => one.origin === labels["origin"] && one.server === labels["server"]);
    const failing = window.each(`${UPSTREAM}failures`).filter(({ labels: own }) => same(labels)(own));
    const reasons = failing.filter(({ perSecond }) => perSecond > 0).map(({ labels: own }) => FAILURES[own["reason"] ?? ""] ?? own["reason"]);
    const failures = failing.reduce((sum, { perSecond }) => sum + perSecond, 0);
    return {
      origin: labels["origin"] ?? "",
      server: shortServer(labels),
      state: note?.state ?? "ready",
      isUp: up === null ? null : up > 0,
      isHalfOpen: up === 0 && (note?.health?.startsWith("half-open") ?? false),
      why: (up === 0 ? (note?.latest_failure ?? reasons.join(", ")) : reasons.join(", ")) || "",
      failuresPerSecond: failures,
      isFailing: failures > FAILURE_SHARE * window.rate(`${UPSTREAM}responses`, same(labels)),
    };
  });
}

const FAILURES: Record<string, string> = {
  connect: "connections fail",
  timeout: "responses come too late",
  lost: "connections are lost",
  malformed: "responses are malformed",
  status: "responses with status 5xx",
};

export class OriginsView {
  private readonly section = byId("origins");
  private readonly table = new LiveTable(
    byId("origins-table"),
    "Servers of origins with their health and requests per second",
    [
      { title: "Server", class: "wide" },
      { title: "State" },
      { title: "Health", class: "wide" },
      { title: "Responses/s", class: "number" },
      { title: "Failures/s", class: "number" },
      { title: "Median", class: "number" },
      { title: "p99", class: "number" },
      { title: "In progress", class: "number" },
      { title: "Connections", class: "number" },
      { title: "New/s", class: "number" },
    ],
    "No origins.",
  );

  update(window: SnapshotWindow): void {
    const snapshot = window.latest();
    if (!snapshot) return;
    const servers = samples(snapshot, `${UPSTREAM}connections_idle`);
    this.section.hidden = servers.length === 0;
    const health = upstreamHealth(window);
    const rows = servers.map(({ labels }, index) => originRow(labels, health[index]!, window, snapshot));
    this.table.update(rows.sort((a, b) => a.key.localeCompare(b.key)));
  }
}

function originRow(labels: MetricLabels, health: UpstreamHealth, window: SnapshotWindow, snapshot: Snapshot): TableRow {
  const now = (name: string) => gauge(snapshot, UPSTREAM + name, same(labels));
  const perSecond = (name: string) => window.rate(UPSTREAM + name, same(labels));
  const failures = health.failuresPerSecond;
  const times = window.durations(`${UPSTREAM}response_seconds`, same(labels));
  return {
    key: `${labels["origin"]}\n${labels["server"]}`,
    cells: [
      { text: health.server, note: health.origin.endsWith(health.server) ? undefined : health.origin },
      { text: health.state, state: health.state === "ready" ? undefined : "idle" },
      healthCell(health),
      now("responses") === null ? "" : amount(perSecond("responses")),
      { text: amount(failures), state: failures > 0 ? "bad" : undefined },
      duration(times.quantile(0.5)),
      duration(times.quantile(0.99)),
      grouped(now("requests_in_progress")),
      `${grouped(now("connections_in_use"))} used, ${grouped(now("connections_idle"))} idle`,
      amount(perSecond("connections_opened")),
    ],
  };
}

/** Whether an operator keeps the server out of rotation; its health is no problem then. */
export function isOut({ state }: UpstreamHealth): boolean {
  return state === "drain" || state === "down";
}

function healthCell(health: UpstreamHealth): CellContent {
  const cell = observedCell(health);
  return isOut(health) ? { ...cell, state: "idle" } : cell;
}

function observedCell({ isUp, isHalfOpen, isFailing, why }: UpstreamHealth): CellContent {
  const note = (isFailing || isUp === false ? why : "") || undefined;
  if (isHalfOpen) return { text: "half-open", state: "warn", note };
  if (isUp === false) return { text: "down", state: "bad", note };
  if (isFailing) return { text: "up, with failures", state: "warn", note };
  return { text: isUp === null ? "not checked" : "up", state: isUp === null ? "idle" : "good", note };
}

/** The server without its origin and the usual scheme: `app at http://10.0.0.1:3000`. */
function shortServer(labels: MetricLabels): string {
  const server = labels["server"] ?? "";
  const prefix = `${labels["origin"]} at `;
  return (server.startsWith(prefix) ? server.slice(prefix.length) : server).replace(/^http:\/\//, "");
}

function same(labels: MetricLabels): (other: MetricLabels) => boolean {
  return (other) => other["origin"] === labels["origin"] && other["server"] === labels["server"];
}
