/** The recent lines of the error log, the newest first. */

import { arrange, byId, element } from "./dom.js";
import { timeOfDay } from "./format.js";
import type { LogLine, Snapshot } from "./snapshot.js";

const LINE_COUNT_MAX = 30;

export class ErrorsView {
  private readonly section = byId("errors");
  private readonly list = byId("error-lines");
  private readonly lines = new Map<string, HTMLElement>();

  update(snapshot: Snapshot): void {
    const all = snapshot.errors;
    this.section.hidden = all === undefined;
    if (!all) return;
    byId("no-errors").hidden = all.length > 0;
    const seen = new Map<string, number>();
    const shown = [...all].reverse().slice(0, LINE_COUNT_MAX).map((line) => this.lineElement(line, seen));
    for (const [key, node] of this.lines) if (!shown.includes(node)) this.lines.delete(key);
    arrange(this.list, shown);
  }

  private lineElement(line: LogLine, seen: Map<string, number>): HTMLElement {
    const text = `${line.time_ms} ${line.level} ${line.message}`;
    const number = seen.get(text) ?? 0;
    seen.set(text, number + 1);
    const key = `${text} ${number}`;
    let node = this.lines.get(key);
    if (!node) {
      const time = element("time", { datetime: new Date(line.time_ms).toISOString() }, timeOfDay(line.time_ms));
      const level = element("span", { class: `log-level log-${line.level}` }, line.level);
      node = element("li", {}, time, level, element("span", { class: "log-message" }, line.message));
      this.lines.set(key, node);
    }
    return node;
  }
}
