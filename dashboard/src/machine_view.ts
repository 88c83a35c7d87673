/** Workers, connections, cache and process. */

import { arrange, byId, element, setText } from "./dom.js";
import { amount, bytes, duration, grouped, percent } from "./format.js";
import type { SnapshotWindow } from "./rates.js";
import { gauge, samples } from "./snapshot.js";
import type { Snapshot } from "./snapshot.js";
import { LiveTable } from "./table.js";

const TURNS = "lowroad_worker_turn_duration_seconds";

/** Descriptions of the counters of failed connections and requests. */
const TROUBLES: [string, string][] = [
  ["lowroad_requests_malformed", "malformed requests"],
  ["lowroad_responses_cut", "responses not sent completely"],
  ["lowroad_connections_broken", "broken connections"],
  ["lowroad_header_timeouts", "request heads too late"],
  ["lowroad_body_timeouts", "request bodies too late"],
  ["lowroad_send_timeouts", "clients that stopped reading"],
  ["lowroad_connections_closed_rate_min", "transfers below the minimum rate"],
  ["lowroad_connections_refused_server_limit", "connections beyond the limit"],
  ["lowroad_connections_refused_address_limit", "connections beyond an address's limit"],
  ["lowroad_tls_handshake_failures", "failed TLS handshakes"],
  ["lowroad_tls_handshake_timeouts", "TLS handshakes too late"],
  ["lowroad_h2_faults", "HTTP/2 protocol errors"],
  ["lowroad_h2_floods", "HTTP/2 floods"],
  ["lowroad_accept_pauses", "pauses for lack of descriptors"],
  ["lowroad_worker_panics", "panics of workers"],
  ["lowroad_log_lines_lost", "lost log lines"],
  ["lowroad_admin_requests_refused", "refused admin requests"],
];

export class MachineView {
  private readonly workers = new LiveTable(
    byId("workers-table"),
    "Workers with the share of time that they work, and durations of turns of their event loops",
    [
      { title: "Worker" },
      { title: "Busy", class: "number" },
      { title: "Turns/s", class: "number" },
      { title: "Turn, median", class: "number" },
      { title: "p99", class: "number" },
    ],
    "No workers yet.",
  );

  update(window: SnapshotWindow): void {
    const snapshot = window.latest();
    if (!snapshot) return;
    this.updateWorkers(window, snapshot);
    facts("connection-facts", connectionFacts(window, snapshot));
    facts("cache-facts", cacheFacts(window, snapshot));
    facts("process-facts", processFacts(window, snapshot));
    this.updateTroubles(window, snapshot);
  }

  private updateWorkers(window: SnapshotWindow, snapshot: Snapshot): void {
    const seconds = window.seconds();
    const rows = samples(snapshot, TURNS).map(({ labels }) => {
      const turns = window.durations(TURNS, (other) => other["worker"] === labels["worker"]);
      const busy = seconds > 0 ? Math.min(1, turns.sum / seconds) : 0;
      const number = labels["worker"] ?? "";
      return {
        key: number.padStart(4, "0"),
        cells: [
          number,
          { text: percent(busy), bar: busy },
          amount(seconds > 0 ? turns.count / seconds : 0),
          duration(turns.quantile(0.5)),
          duration(turns.quantile(0.99)),
        ],
      };
    });
    this.workers.update(rows.sort((a, b) => a.key.localeCompare(b.key)));
  }

  private updateTroubles(window: SnapshotWindow, snapshot: Snapshot): void {
    const list = byId("troubles");
    const found = TROUBLES.map(([name, text]) => ({ text, count: gauge(snapshot, name) ?? 0, now: window.rate(name) }));
    const shown = found.filter(({ count }) => count > 0);
    byId("no-troubles").hidden = shown.length > 0;
    const items = shown.map(({ text, count, now }) =>
      element("li", now > 0 ? { class: "now" } : {}, element("b", {}, grouped(count)), ` ${text}`, now > 0 ? `, ${amount(now)}/s now` : ""),
    );
    // An unchanged list is not replaced, so that a selection in it stays.
    if (items.map((item) => item.textContent).join() !== [...list.children].map((item) => item.textContent).join()) arrange(list, items);
  }
}

type Fact = [name: string, value: string];

function connectionFacts(window: SnapshotWindow, snapshot: Snapshot): Fact[] {
  return [
    ["Open", grouped(gauge(snapshot, "lowroad_open_connections"))],
    ["Accepted", `${amount(window.rate("lowroad_connections_accepted"))}/s`],
    ["HTTP/2", `${amount(window.rate("lowroad_h2_connections"))}/s`],
    ["TLS handshakes", `${amount(window.rate("lowroad_tls_handshakes"))}/s`],
    ["Tunnels", `${amount(window.rate("lowroad_tunnels"))}/s`],
    ["Sent", `${bytes(window.rate("lowroad_sent_bytes"))}/s`],
  ];
}

function cacheFacts(window: SnapshotWindow, snapshot: Snapshot): Fact[] {
  const [used, max] = [gauge(snapshot, "lowroad_cache_bytes"), gauge(snapshot, "lowroad_cache_max_bytes")];
  const memory = used === null || max === null ? "" : `${bytes(used)} of ${bytes(max)}`;
  const disk = gauge(snapshot, "lowroad_disk_bytes");
  return [
    ["Memory", memory],
    ["Responses", grouped(gauge(snapshot, "lowroad_cache_objects"))],
    ["Stored", `${amount(window.rate("lowroad_cache_inserted"))}/s`],
    ["Evicted", `${amount(window.rate("lowroad_cache_evicted"))}/s`],
    ["Coalesced", `${amount(window.rate("lowroad_cache_coalesced"))}/s`],
    ...(disk === null ? [] : ([["Disk", bytes(disk)]] as Fact[])),
    ["Purges", grouped(gauge(snapshot, "lowroad_purges"))],
  ];
}

function processFacts(window: SnapshotWindow, snapshot: Snapshot): Fact[] {
  const [files, most] = [gauge(snapshot, "process_open_fds"), gauge(snapshot, "process_max_fds")];
  return [
    ["Processor", `${amount(100 * window.rate("process_cpu_seconds"))} % of a core`],
    ["Memory", bytes(gauge(snapshot, "process_resident_memory_bytes"))],
    ["Descriptors", `${grouped(files)} of ${grouped(most)}`],
    ["Reloads", grouped(gauge(snapshot, "lowroad_config_reloads"))],
  ];
}

/** Fills a description list in place. */
function facts(id: string, list: Fact[]): void {
  const place = byId(id);
  const known = new Map([...place.children].map((group) => [group.querySelector("dt")!.textContent, group]));
  const groups = list.map(([name, value]) => {
    const group = known.get(name) ?? element("div", {}, element("dt", {}, name), element("dd", {}));
    setText(group.querySelector("dd")!, value);
    return group;
  });
  arrange(place, groups);
}
