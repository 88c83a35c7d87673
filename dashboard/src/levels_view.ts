/** The picture of the levels: how many requests each answers per second. */

import { byId, element, setAttribute, setText, svg } from "./dom.js";
import { flowRibbons, sparkline } from "./flow.js";
import { NONE, amount, duration, percent } from "./format.js";
import type { HistoryPoint } from "./history.js";
import { LEVELS } from "./traffic.js";
import type { LevelName, TrafficRates } from "./traffic.js";

const TITLES: Record<LevelName, string> = {
  origin: "Servers behind Lowroad",
  handler: "Modules, WebAssembly, CGI, FastCGI, templates",
  worker: "Stored responses and files",
  softirq: "Hot responses, from the kernel",
};

/** A level's numbers. */
export interface LevelReading {
  /** The median and the 99th percentile in seconds, if they are measured. */
  median: number | null;
  late: number | null;
  /** The reason why a level has no requests. */
  note: string | null;
}

const SPARK = { width: 200, height: 40 };

interface LevelRow {
  row: HTMLElement;
  note: HTMLElement;
  rate: HTMLElement;
  share: HTMLElement;
  times: HTMLElement;
  spark: SVGPathElement;
  area: SVGPathElement;
}

export class LevelsView {
  private readonly rows = new Map<LevelName, LevelRow>();
  private readonly picture = byId("flow");
  private readonly drawing = svg("svg", { "aria-hidden": "true", focusable: "false" });
  private readonly ribbons = new Map<LevelName, SVGPathElement>();
  private readonly dots = new Map<LevelName, SVGPathElement>();
  private rates: TrafficRates | null = null;

  constructor() {
    // The lowest level is at the bottom.
    byId("level-rows").append(...[...LEVELS].reverse().map((level) => this.makeRow(level)));
    for (const level of LEVELS) {
      const ribbon = svg("path", { class: `ribbon level-${level}` });
      const dots = svg("path", { class: `dots level-${level}` });
      this.ribbons.set(level, ribbon);
      this.dots.set(level, dots);
      this.drawing.append(ribbon, dots);
    }
    this.picture.append(this.drawing);
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  update(rates: TrafficRates, readings: Record<LevelName, LevelReading>, points: HistoryPoint[]): void {
    this.rates = rates;
    setText(byId("incoming"), amount(rates.total));
    const max = Math.max(0, ...points.map((point) => point.traffic.total));
    for (const [level, row] of this.rows) {
      const rate = rates.levels[level];
      const reading = readings[level];
      const isUnknown = rate === 0 && reading.note !== null;
      row.row.classList.toggle("idle", rate === 0);
      row.row.classList.toggle("unknown", isUnknown);
      setText(row.rate, isUnknown ? NONE : amount(rate));
      setText(row.share, rates.total > 0 && !isUnknown ? percent(rate / rates.total) : "");
      setText(row.note, reading.note ?? TITLES[level]);
      const times = reading.median === null ? "" : `${duration(reading.median)} median, ${duration(reading.late)} p99`;
      setText(row.times, times);
      const values = points.map((point) => point.traffic.levels[level]);
      const line = sparkline(values, SPARK.width, SPARK.height, max);
      setAttribute(row.spark, "d", line);
      setAttribute(row.area, "d", line && `${line}V${SPARK.height}H0Z`);
    }
    this.draw();
  }

  private makeRow(level: LevelName): HTMLElement {
    const [spark, area] = [svg("path", { class: "spark" }), svg("path", { class: "spark-area" })];
    const box = svg(
      "svg",
      { viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
      area,
      spark,
    );
    const note = element("span", { class: "level-note" });
    const times = element("span", { class: "level-times" });
    const rate = element("span", { class: "level-rate" });
    const share = element("span", { class: "level-share" });
    const row = element(
      "li",
      { class: `level level-${level}` },
      element("div", { class: "level-name" }, element("strong", {}, level), note, times),
      box,
      element(
        "div",
        { class: "level-numbers" },
        element("span", { class: "level-rate-line" }, rate, element("span", { class: "unit" }, " req/s")),
        share,
      ),
    );
    this.rows.set(level, { row, note, rate, share, times, spark, area });
    return row;
  }

  private draw(): void {
    const { clientWidth: width, clientHeight: height } = this.picture;
    if (!this.rates || width === 0) return;
    setAttribute(this.drawing, "viewBox", `0 0 ${width} ${height}`);
    const rows = Object.fromEntries(
      [...this.rows].map(([level, { row }]) => [level, row.offsetTop - this.picture.offsetTop + row.offsetHeight / 2]),
    ) as Record<LevelName, number>;
    const rowHeight = height / LEVELS.length;
    const thickness = Math.min(0.72 * rowHeight, 64);
    const source = rows.softirq - 0.4 * rowHeight;
    const drawn = flowRibbons(this.rates.levels, { width, rows, thickness, source });
    for (const level of LEVELS) {
      const ribbon = drawn.find((one) => one.level === level);
      setAttribute(this.ribbons.get(level)!, "d", ribbon?.outline ?? null);
      const dots = this.dots.get(level)!;
      setAttribute(dots, "d", ribbon?.centre ?? null);
      if (ribbon) setAttribute(dots, "stroke-width", Math.min(4, Math.max(2, ribbon.thickness / 4)).toFixed(1));
    }
  }
}
