/** Charts over time, on uPlot: stacked areas and lines with a legend of current values. */

import uPlot from "uplot";

import { byId, element, setAttribute, setText } from "./dom.js";
import { timeOfDay } from "./format.js";
import { colors, onThemeChange } from "./theme.js";

/** A series: its name, and the name of its colour in the style sheet. */
export interface ChartSeries {
  name: string;
  color: string;
}

export interface ChartOptions {
  /** The id of the figure. */
  id: string;
  series: ChartSeries[];
  /** Stacked areas, the first at the bottom. */
  isStacked: boolean;
  format: (value: number | null) => string;
  /** The labels of the y axis, if they differ. */
  axis?: (value: number) => string;
  /** The upper end of the y axis, if it is fixed. */
  max?: number;
  /** A scale that is linear below 1 and logarithmic above, so that rare values stay visible beside frequent ones. */
  isLogarithmic?: boolean;
}

const HEIGHT = 190;

/** Charts with cursors that move together. */
const CURSORS = uPlot.sync("time");

export class LineChart {
  private readonly plot: uPlot;
  private readonly values: HTMLElement[] = [];
  private raw: (number | null)[][] = [];
  private times: number[] = [];
  private range: [number, number] = [0, 1];

  constructor(private readonly options: ChartOptions) {
    const figure = byId(options.id);
    const place = figure.querySelector<HTMLElement>(".plot")!;
    figure.querySelector(".legend")!.append(...this.legend());
    this.plot = new uPlot(this.plotOptions(place.clientWidth), this.data(), place);
    this.describe();
    new ResizeObserver(() => this.plot.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
    onThemeChange(() => this.plot.redraw());
  }

  /** Shows values at times; a series' values have the order of the options. */
  update(times: number[], values: (number | null)[][], range: [number, number]): void {
    [this.times, this.raw, this.range] = [times, values, range];
    this.plot.batch(() => {
      this.plot.setData(this.data() as uPlot.AlignedData, false);
      this.plot.setScale("x", { min: range[0], max: range[1] });
      this.plot.setScale("y", { min: 0, max: this.top() });
    });
    this.showValues(this.plot.cursor.idx ?? null);
    this.describe();
  }

  private data(): uPlot.AlignedData {
    if (!this.options.isStacked) return [this.times, ...this.lists()] as uPlot.AlignedData;
    const sums = this.times.map(() => 0);
    const stacked = this.lists().map((list) => list.map((value, index) => (sums[index] = sums[index]! + (value ?? 0))));
    // The highest sum is drawn first, so that the lower ones cover it.
    return [this.times, ...stacked.reverse()] as uPlot.AlignedData;
  }

  private lists(): (number | null)[][] {
    return this.options.series.map((_, index) => this.raw[index] ?? []);
  }

  private top(): number {
    if (this.options.max !== undefined) return this.options.max;
    const all = (this.data() as (number | null)[][]).slice(1).flat();
    const max = Math.max(0, ...all.map((value) => value ?? 0));
    // A logarithmic scale covers at least a decade, so that it has two labels.
    return Math.max(this.options.isLogarithmic ? 10 : 0, max > 0 ? 1.12 * max : 1);
  }

  private plotOptions(width: number): uPlot.Options {
    const shown = this.options.isStacked ? [...this.options.series].reverse() : this.options.series;
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: CURSORS.key }, drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: true, auto: false, range: (_, min, max) => [min, max] },
        y: { auto: false, range: (_, min, max) => [min, max], ...(this.options.isLogarithmic ? { distr: 4 as const, asinh: 1 } : {}) },
      },
      padding: [8, 16, 0, 0],
      axes: axes(this.options.axis ?? this.options.format, this.options.isLogarithmic ? () => powers(this.top()) : undefined),
      series: [{}, ...shown.map((series) => this.plotSeries(series))],
      hooks: { setCursor: [(plot) => this.showValues(plot.cursor.idx ?? null)] },
    };
  }

  private plotSeries({ color }: ChartSeries): uPlot.Series {
    const stroke = () => colors().series(color);
    const isStacked = this.options.isStacked;
    return {
      // Opaque, since each area covers the higher one behind it.
      stroke: () => (isStacked ? colors().paper : stroke()),
      width: isStacked ? 1 : 1.75,
      ...(isStacked ? { fill: stroke } : {}),
      points: { show: false },
      spanGaps: false,
    };
  }

  private legend(): HTMLElement[] {
    return this.options.series.map(({ name, color }) => {
      const value = element("span", { class: "legend-value" });
      this.values.push(value);
      return element("li", {}, element("span", { class: `key key-${color}` }), element("span", {}, name), value);
    });
  }

  /** The values at the cursor, otherwise the latest. */
  private showValues(index: number | null): void {
    const at = index ?? this.times.length - 1;
    this.values.forEach((node, series) => setText(node, this.options.format(this.raw[series]?.[at] ?? null)));
    const hint = byId(this.options.id).querySelector(".at");
    const time = this.times[at];
    if (hint) setText(hint, index !== null && time !== undefined ? `at ${timeOfDay(time * 1000)}` : "");
  }

  /** The text alternative of the canvas. */
  private describe(): void {
    const { format, series } = this.options;
    const minutes = Math.max(1, Math.round((this.range[1] - this.range[0]) / 60));
    const parts = series.map(({ name }, index) => {
      const values = (this.raw[index] ?? []).filter((value) => value !== null);
      if (values.length === 0) return `${name}: no data yet`;
      return `${name}: now ${format(values.at(-1) ?? null)}, between ${format(Math.min(...values))} and ${format(Math.max(...values))}`;
    });
    const place = byId(this.options.id).querySelector(".plot")!;
    setAttribute(place, "aria-label", `Last ${minutes === 1 ? "minute" : `${minutes} minutes`}. ${parts.join(". ")}.`);
  }
}

/** The axes of all charts: times at the bottom, few values at the left. */
export function axes(format: (value: number) => string, splits?: uPlot.Axis.Splits): uPlot.Axis[] {
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const quiet = { stroke: () => colors().quiet, font, ticks: { show: false } };
  return [
    { ...quiet, grid: { show: false }, space: 80, size: 26, gap: 6, values: (_, times) => times.map(timeLabel) },
    {
      ...quiet,
      grid: { stroke: () => colors().line, width: 1 },
      space: 38,
      size: 58,
      gap: 8,
      values: (_, values) => values.map((value) => format(value)),
      // By default uPlot omits labels of a logarithmic axis.
      ...(splits ? { splits, filter: (_, values) => values } : {}),
    },
  ];
}

/** 0, 1, 10, 100 and so on. */
function powers(top: number): number[] {
  const all = [0];
  for (let power = 1; power <= top; power *= 10) all.push(power);
  return all;
}

function timeLabel(timeS: number): string {
  const text = timeOfDay(timeS * 1000);
  return text.endsWith(":00") ? text.slice(0, 5) : text;
}
