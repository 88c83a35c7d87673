/** The latency heat map: the distribution of durations over time, with median and 99th percentile as lines. */

import uPlot from "uplot";

import type { Distribution } from "./distribution.js";
import { byId, setAttribute, setText } from "./dom.js";
import { duration, timeOfDay } from "./format.js";
import { heatCells, heatRange } from "./heat_cells.js";
import type { HeatColumn } from "./heat_cells.js";
import { axes } from "./line_chart.js";
import { colors, onThemeChange } from "./theme.js";

const HEIGHT = 190;
/** The range before there are requests: 10 µs to 1 s, as exponents of 2. */
const EMPTY_RANGE: [number, number] = [-17, 0];

export class HeatMap {
  private readonly plot: uPlot;
  private readonly figure = byId("latency");
  private columns: HeatColumn[] = [];
  private step = 1;
  private exponents: [number, number] = EMPTY_RANGE;

  constructor() {
    const place = this.figure.querySelector<HTMLElement>(".plot")!;
    this.plot = new uPlot(this.options(place.clientWidth), [[], [], []], place);
    new ResizeObserver(() => this.plot.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
    onThemeChange(() => this.plot.redraw());
  }

  update(times: number[], durations: Distribution[], range: [number, number], step: number): void {
    this.columns = durations.map((distribution, index) => ({ timeS: times[index]!, distribution }));
    this.step = step;
    this.exponents = heatRange(this.columns) ?? EMPTY_RANGE;
    const exponent = (share: number) =>
      durations.map((one) => {
        const value = one.quantile(share);
        return value === null ? null : Math.log2(value);
      });
    this.plot.batch(() => {
      this.plot.setData([times, exponent(0.5), exponent(0.99)] as uPlot.AlignedData, false);
      this.plot.setScale("x", { min: range[0], max: range[1] });
      this.plot.setScale("y", { min: this.exponents[0], max: this.exponents[1] });
    });
    this.showValues(this.plot.cursor.idx ?? null);
    this.describe();
  }

  private options(width: number): uPlot.Options {
    const line = (dash: number[]): uPlot.Series => ({
      stroke: () => colors().ink,
      width: 1.5,
      dash,
      points: { show: false },
      spanGaps: false,
    });
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: { x: { time: true, auto: false, range: (_, min, max) => [min, max] }, y: { auto: false, range: (_, min, max) => [min, max] } },
      padding: [8, 16, 0, 0],
      axes: axes((exponent) => decade(exponent), () => this.decades()),
      series: [{}, line([]), line([4, 3])],
      hooks: {
        drawAxes: [(plot) => this.draw(plot)],
        setCursor: [(plot) => this.showValues(plot.cursor.idx ?? null)],
      },
    };
  }

  /** Powers of ten within the range. */
  private decades(): number[] {
    const [from, to] = this.exponents.map((exponent) => exponent * Math.log10(2)) as [number, number];
    const tens = [];
    for (let ten = Math.ceil(from); ten <= to; ten++) tens.push(ten * Math.log2(10));
    return tens;
  }

  private draw(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = colors().series("heat");
    const ratio = devicePixelRatio;
    for (const cell of heatCells(this.columns, this.step)) {
      const [x, right] = [plot.valToPos(cell.fromS, "x", true), plot.valToPos(cell.toS, "x", true)];
      const [top, bottom] = [plot.valToPos(cell.to, "y", true), plot.valToPos(cell.from, "y", true)];
      ctx.globalAlpha = cell.weight;
      // With fractions of pixels, neighbouring cells would overlap, which shows as lines.
      ctx.fillRect(Math.round(x), Math.round(top), Math.max(ratio, Math.round(right) - Math.round(x)), Math.round(bottom) - Math.round(top));
    }
    ctx.restore();
  }

  private showValues(index: number | null): void {
    const column = this.columns[index ?? this.columns.length - 1];
    for (const [name, share] of [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p999", 0.999]] as const) {
      setText(byId(`latency-${name}`), duration(column?.distribution.quantile(share) ?? null));
    }
    setText(this.figure.querySelector(".at")!, index !== null && column ? `at ${timeOfDay(column.timeS * 1000)}` : "");
  }

  private describe(): void {
    const latest = this.columns.at(-1)?.distribution;
    const text = latest?.count
      ? `Durations of requests over time. Now: median ${duration(latest.quantile(0.5))}, 99th percentile ${duration(latest.quantile(0.99))}.`
      : "Durations of requests over time. There are none now.";
    setAttribute(this.figure.querySelector(".plot")!, "aria-label", text);
  }
}

/** A power of ten as a label. */
function decade(exponent: number): string {
  const seconds = 2 ** exponent;
  const round = 10 ** Math.round(Math.log10(seconds));
  if (round < 0.999e-3) return `${Math.round(round * 1e6)} µs`;
  return round < 0.999 ? `${Math.round(round * 1e3)} ms` : `${Math.round(round)} s`;
}
