/** The dashboard: receives a snapshot each second, computes rates, and shows them. */

import { attention, showAttention } from "./attention.js";
import { CertificatesView } from "./certificates_view.js";
import { byId, setAttribute, setText } from "./dom.js";
import { ErrorsView } from "./errors_view.js";
import { NONE, amount, bytes, duration, percent, span, timeOfDay } from "./format.js";
import { HeatMap } from "./heat_map.js";
import { History, stepFor } from "./history.js";
import { HotUrlsView } from "./hot_urls_view.js";
import { LevelsView } from "./levels_view.js";
import type { LevelReading } from "./levels_view.js";
import { LineChart } from "./line_chart.js";
import { MachineView } from "./machine_view.js";
import { OriginsView } from "./origins_view.js";
import { SnapshotWindow } from "./rates.js";
import { RelayFeed } from "./relay_state.js";
import { SitesView } from "./sites_view.js";
import { gauge, samples } from "./snapshot.js";
import type { Snapshot } from "./snapshot.js";
import { EventStream } from "./stream.js";
import type { StreamState } from "./stream.js";
import { BODY_BYTES, CODE_CLASSES, DURATIONS, LEVELS, REQUESTS, hitRatio, levelDurations, softirqRates, trafficRates } from "./traffic.js";
import type { LevelName, SoftirqRates, TrafficRates } from "./traffic.js";
import { UrlTool } from "./url_tool.js";

/** Numbers are averages of five seconds, which can be read and still change quickly. */
const NUMBERS_MS = 5000;
/** Charts are drawn from steps of a second. */
const CHART_MS = 1000;
const SPARK_S = 120;

const STATES: Record<StreamState, string> = {
  connecting: "Connecting",
  live: "Live",
  lost: "Connection lost, trying again",
  refused: "This session has ended: run lowroad dashboard again",
};

class Dashboard {
  private readonly numbers = new SnapshotWindow(NUMBERS_MS);
  private readonly step = new SnapshotWindow(CHART_MS);
  private readonly history = new History();
  private readonly relay = new RelayFeed("v1/relay");
  private readonly levels = new LevelsView();
  private readonly views = { sites: new SitesView(), origins: new OriginsView(), certificates: new CertificatesView() };
  private readonly machine = new MachineView();
  private readonly errors = new ErrorsView();
  private readonly tool = new UrlTool();
  private readonly hotUrls = new HotUrlsView(this.tool);
  private readonly heatMap = new HeatMap();
  private readonly requestChart = new LineChart({
    id: "requests",
    series: LEVELS.map((name) => ({ name, color: `level-${name}` })),
    isStacked: true,
    format: amount,
  });
  private readonly codeChart = new LineChart({
    id: "codes",
    series: CODE_CLASSES.map((name) => ({ name, color: `code-${name}` })),
    isStacked: false,
    isLogarithmic: true,
    format: amount,
  });
  private readonly throughputChart = new LineChart({
    id: "throughput",
    series: [{ name: "response bodies", color: "bytes" }],
    isStacked: false,
    format: (value) => (value === null ? NONE : `${bytes(value)}/s`),
    axis: (value) => (value === 0 ? "0" : bytes(value)),
  });
  private readonly hitChart = new LineChart({
    id: "hits",
    series: [{ name: "hits of look-ups", color: "level-worker" }],
    isStacked: false,
    format: percent,
    axis: (value) => `${Math.round(100 * value)} %`,
    max: 1,
  });
  private spanS = 300;
  private isPaused = false;

  start(): void {
    void this.relay.follow();
    this.listen();
    new EventStream("v1/events", {
      snapshot: (snapshot) => this.take(snapshot),
      state: (state) => this.showState(state),
    }).open();
  }

  private listen(): void {
    byId("pause").addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      setAttribute(byId("pause"), "aria-pressed", String(this.isPaused));
      document.body.classList.toggle("paused", this.isPaused);
      this.render();
    });
    for (const choice of document.querySelectorAll<HTMLInputElement>("input[name=span]")) {
      choice.addEventListener("change", () => {
        this.spanS = Number(choice.value);
        this.renderCharts();
      });
    }
    document.addEventListener("visibilitychange", () => this.render());
  }

  private take(snapshot: Snapshot): void {
    this.numbers.push(snapshot);
    this.step.push(snapshot);
    if (this.step.seconds() > 0 && this.relay.isSettled()) {
      const below = this.below(this.step);
      this.history.push({
        timeS: snapshot.time_ms / 1000,
        traffic: trafficRates(this.step.each(REQUESTS), below.requests),
        bytes: this.step.rate(BODY_BYTES) + below.bytes,
        durations: this.step.durations(DURATIONS),
      });
    }
    this.render();
  }

  /** The rate of the server's own softirq level, otherwise that of the levels that the relay reports. */
  private below(window: SnapshotWindow): SoftirqRates {
    return softirqRates(window) ?? this.relay.rates();
  }

  private render(): void {
    const snapshot = this.numbers.latest();
    // A hidden page is not drawn, so that it needs no processor time.
    if (!snapshot || this.isPaused || document.hidden) return;
    document.body.classList.remove("waiting");
    const rates = trafficRates(this.numbers.each(REQUESTS), this.below(this.numbers).requests);
    this.renderHead(snapshot, rates);
    this.levels.update(rates, this.readings(), this.history.view(SPARK_S));
    showAttention(attention(this.numbers, rates));
    this.renderCharts();
    this.views.sites.update(this.numbers);
    this.views.origins.update(this.numbers);
    this.views.certificates.update(snapshot);
    this.machine.update(this.numbers);
    this.errors.update(snapshot);
    const isReadOnly = this.relay.state?.is_read_only ?? false;
    this.hotUrls.update(snapshot, isReadOnly);
    this.tool.setReadOnly(isReadOnly);
  }

  private renderHead(snapshot: Snapshot, rates: TrafficRates): void {
    const durations = this.numbers.durations(DURATIONS);
    const sent = this.numbers.rate(BODY_BYTES) + this.below(this.numbers).bytes;
    const failures = rates.total > 0 ? rates.codes["5xx"] / rates.total : null;
    setText(byId("now-hits"), percent(hitRatio(rates)));
    setText(byId("now-median"), duration(durations.quantile(0.5)));
    setText(byId("now-p99"), duration(durations.quantile(0.99)));
    setText(byId("now-bytes"), `${bytes(sent)}/s`);
    setText(byId("now-failures"), percent(failures));
    setAttribute(byId("now-failures"), "class", failures !== null && failures > 0.01 ? "bad" : null);
    setText(byId("now-connections"), amount(gauge(snapshot, "lowroad_open_connections")));
    const version = samples(snapshot, "lowroad_build")[0]?.labels["version"];
    const start = gauge(snapshot, "process_start_time_seconds");
    const up = start === null ? "" : `, up ${span(snapshot.time_ms / 1000 - start)}`;
    setText(byId("server"), version ? `${version}${up}` : "");
    setAttribute(document.body, "data-total", rates.total.toFixed(2));
  }

  private readings(): Record<LevelName, LevelReading> {
    const reading = (level: LevelName): LevelReading => {
      const times = levelDurations(this.numbers, level);
      return { median: times.quantile(0.5), late: times.quantile(0.99), note: level === "softirq" ? this.softirqNote() : null };
    };
    return Object.fromEntries(LEVELS.map((level) => [level, reading(level)])) as Record<LevelName, LevelReading>;
  }

  private softirqNote(): string | null {
    if (softirqRates(this.numbers)) return null;
    const levels = this.relay.state?.levels;
    if (!levels) return "Not seen from here";
    if (levels.length === 0) return "Not attached";
    const trouble = levels.map((level) => level.trouble).find((one) => one !== null);
    return trouble ? `All connections are left to the kernel: ${trouble}` : null;
  }

  private renderCharts(): void {
    const points = this.history.view(this.spanS);
    const range = this.history.range(this.spanS);
    const times = points.map((point) => point.timeS);
    const list = <K extends string>(names: readonly K[], values: (traffic: TrafficRates) => Record<K, number>) =>
      names.map((name) => points.map((point) => values(point.traffic)[name]));
    this.requestChart.update(times, list(LEVELS, (traffic) => traffic.levels), range);
    this.codeChart.update(times, list(CODE_CLASSES, (traffic) => traffic.codes), range);
    this.throughputChart.update(times, [points.map((point) => point.bytes)], range);
    this.hitChart.update(times, [points.map((point) => hitRatio(point.traffic))], range);
    this.heatMap.update(times, points.map((point) => point.durations), range, stepFor(this.spanS));
  }

  private showState(state: StreamState): void {
    const latest = this.numbers.latest();
    const isStale = (state === "lost" || state === "refused") && latest !== undefined;
    setText(byId("state-text"), isStale ? `${STATES[state]}. Numbers of ${timeOfDay(latest.time_ms)}` : STATES[state]);
    setAttribute(byId("state"), "data-state", state);
    // The last numbers stay, for an operator looking into a crash, but must not look like current ones.
    document.body.classList.toggle("stale", isStale);
  }
}

new Dashboard().start();
