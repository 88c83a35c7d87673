/** Tables with rows that are kept and updated in place, so that focus, selection and reading position stay. */

import { arrange, element, setAttribute, setText } from "./dom.js";

/** The content of a cell. */
export interface CellContent {
  text: string;
  /** A second line in a subdued colour. */
  note?: string | undefined;
  /** A mark before the text, with its state in words beside it. */
  state?: "good" | "warn" | "bad" | "idle" | undefined;
  /** A bar behind the text, from 0 to 1. */
  bar?: number | undefined;
  /** Buttons below the text. A cell keeps the buttons of its first update; later ones only change whether they are disabled. */
  actions?: CellAction[] | undefined;
}

/** A button of a row. */
export interface CellAction {
  name: string;
  /** The row's subject, for screen readers: several buttons have the same name. */
  subject: string;
  isDisabled: boolean;
  run: () => void;
}

export interface TableRow {
  key: string;
  class?: string;
  cells: (CellContent | string)[];
}

export interface TableColumn {
  title: string;
  class?: string;
}

interface RowParts {
  row: HTMLTableRowElement;
  cells: HTMLTableCellElement[];
}

/** Minimum time between two changes of the order, since rows that move can't be clicked. */
const REORDER_MS = 5000;

export class LiveTable {
  private readonly body = element("tbody", { role: "rowgroup" });
  private readonly parts = new Map<string, RowParts>();
  private order: string[] = [];
  private orderedAt = 0;
  private readonly empty: HTMLElement;

  constructor(
    place: HTMLElement,
    caption: string,
    private readonly columns: TableColumn[],
    emptyText: string,
  ) {
    // The roles are those of the elements. Browsers drop these where the page shows rows as blocks, on small screens.
    const heads = columns.map((column) => element("th", { scope: "col", role: "columnheader", class: column.class ?? "" }, column.title));
    const table = element(
      "table",
      { role: "table" },
      element("caption", { class: "hidden" }, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
      this.body,
    );
    this.empty = element("p", { class: "empty" }, emptyText);
    place.append(table, this.empty);
  }

  update(rows: TableRow[]): void {
    this.empty.hidden = rows.length > 0;
    this.body.parentElement!.hidden = rows.length === 0;
    const ordered = this.ordered(rows);
    const shown = ordered.map((row) => {
      const parts = this.parts.get(row.key) ?? this.makeRow(row);
      setAttribute(parts.row, "class", row.class ?? "");
      row.cells.forEach((content, index) => fill(parts.cells[index]!, content));
      return parts.row;
    });
    const keys = new Set(rows.map((row) => row.key));
    for (const key of this.parts.keys()) if (!keys.has(key)) this.parts.delete(key);
    arrange(this.body, shown);
  }

  /** The rows in their previous order, unless there are other rows or the order is too old. */
  private ordered(rows: TableRow[]): TableRow[] {
    const now = Date.now();
    const byKey = new Map(rows.map((row) => [row.key, row]));
    const isSame = rows.length === this.order.length && this.order.every((key) => byKey.has(key));
    const isHeld = this.body.matches(":hover, :focus-within") || now - this.orderedAt < REORDER_MS;
    if (isSame && isHeld) return this.order.map((key) => byKey.get(key)!);
    [this.order, this.orderedAt] = [rows.map((row) => row.key), now];
    return rows;
  }

  private makeRow(row: TableRow): RowParts {
    const cells = this.columns.map((column, index) =>
      // The first cell is the heading of its row, which screen readers announce.
      element(index === 0 ? "th" : "td", {
        ...(index === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" }),
        class: column.class ?? "",
        "data-title": column.title,
      }),
    );
    const parts = { row: element("tr", { role: "row" }, ...cells), cells };
    this.parts.set(row.key, parts);
    return parts;
  }
}

function fill(cell: HTMLTableCellElement, content: CellContent | string): void {
  const { text, note, state, bar, actions } = typeof content === "string" ? { text: content } : content;
  let line = cell.querySelector<HTMLElement>(".cell-text");
  if (!line) {
    line = element("span", { class: "cell-text" });
    cell.append(line);
  }
  setText(line, text);
  setAttribute(line, "data-state", state ?? null);
  part(cell, "cell-note", note, (node) => setText(node, note ?? ""));
  fillActions(cell, actions ?? []);
  part(cell, "cell-bar", bar, (node) => node.style.setProperty("--part", `${Math.min(1, bar ?? 0) * 100}%`));
}

function fillActions(cell: HTMLElement, actions: CellAction[]): void {
  const buttons = cell.querySelectorAll("button");
  actions.forEach((action, index) => {
    let button = buttons[index];
    if (!button) {
      button = element("button", { type: "button", class: "small", "aria-label": `${action.name} ${action.subject}` }, action.name);
      button.addEventListener("click", action.run);
      cell.append(button);
    }
    button.disabled = action.isDisabled;
  });
}

/** An element of a cell that exists only with a value. */
function part(cell: HTMLElement, name: string, value: unknown, update: (node: HTMLElement) => void): void {
  let node = cell.querySelector<HTMLElement>(`.${name}`);
  if (value === undefined) return node?.remove();
  if (!node) {
    node = element("span", { class: name });
    cell.append(node);
  }
  update(node);
}
