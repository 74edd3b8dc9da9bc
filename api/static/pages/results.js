// The latest results of a task: one window as a table, and its largest groups over time.

import { get, taskPath } from "/static/api.js";
import { Chart } from "/static/chart.js";
import { fill, h, setText } from "/static/dom.js";
import { clock, hour, short, some } from "/static/format.js";
import { rowsTable } from "/static/pages/rows.js";

const ROWS = 1_000; // of one request
const WINDOWS_KEPT = 120;
const ROWS_SHOWN = 20;
const GROUPS_SHOWN = 5; // lines in the chart

const BOUNDS = ["window_start", "window_end"];

export class Results {
  constructor(name) {
    this.name = name;
    this.windows = new Map(); // start -> {window_start, window_end, complete, rows}
    this.revised = new Map(); // start -> the revision for which it was asked again
    this.chosen = null;
    this.choice = h("select", { id: "window", on: { change: () => this.choose() } });
    this.column = h("select", { id: "column", on: { change: () => this.drawChart() } });
    this.chart = new Chart("Largest groups over time", { labels: [], format: short, height: 200 });
    this.note = h("p", { class: "quiet" });
    this.rows = h("div");
    this.body = h(
      "div",
      { hidden: true },
      h("div", { class: "field inline" }, h("label", { for: "column" }, "Figure"), this.column),
      this.chart.element,
      h(
        "div",
        { class: "field inline" },
        h("label", { for: "window" }, "Window (UTC)"),
        this.choice,
      ),
      this.note,
      this.rows,
    );
    this.none = h(
      "p",
      { class: "quiet" },
      "No window has closed yet; above is what the next one waits for.",
    );
    this.element = h("div", {}, this.none, this.body);
  }

  async look(signal) {
    const found = await get(taskPath(this.name, `/results?limit=${ROWS}`), signal);
    const newest = Math.max(...this.windows.keys());
    for (const one of found.windows) this.windows.set(one.window_start, one);
    for (const one of found.revised) await this.again(one, signal);
    for (const start of [...this.windows.keys()].sort((a, b) => b - a).slice(WINDOWS_KEPT)) {
      this.windows.delete(start);
      this.revised.delete(start);
    }
    if (!this.windows.size) return;
    this.none.hidden = true;
    this.body.hidden = false;
    this.fillColumns();
    if (Math.max(...this.windows.keys()) !== newest) this.fillChoice();
    this.drawRows();
    this.drawChart();
  }

  /** A window that was shown before, and that late rows have changed since. */
  async again(one, signal) {
    const start = one.window_start;
    if (!this.windows.has(start) || this.revised.get(start) >= one.revision) return;
    const path = `/results?limit=${ROWS}&window_start=${start}`;
    const found = await get(taskPath(this.name, path), signal);
    this.revised.set(start, one.revision);
    const now = found.windows.find((other) => other.version === one.version);
    if (now) this.windows.set(start, now);
    else this.windows.delete(start);
  }

  choose() {
    this.chosen = this.choice.value === "" ? null : Number(this.choice.value);
    this.drawRows();
  }

  sorted() {
    return [...this.windows.values()].sort((one, other) => one.window_start - other.window_start);
  }

  fillChoice() {
    const options = this.sorted().reverse();
    fill(
      this.choice,
      h("option", { value: "" }, "the newest"),
      options.map((one) =>
        h(
          "option",
          { value: String(one.window_start) },
          `${clock(one.window_start)} – ${hour(one.window_end)}`,
        ),
      ),
    );
    this.choice.value = this.windows.has(this.chosen) ? String(this.chosen) : "";
  }

  fillColumns() {
    const rows = this.sorted().flatMap((one) => one.rows.slice(0, 5));
    const names = Object.keys(rows[0] ?? {}).filter(
      (name) => !BOUNDS.includes(name) && rows.some((one) => typeof one[name] === "number"),
    );
    if (names.join() === this.names?.join()) return;
    this.names = names;
    fill(
      this.column,
      names.map((name) => h("option", { value: name }, name)),
    );
    this.column.value = names.find((name) => /count/.test(name)) ?? names.at(-1) ?? "";
  }

  drawRows() {
    const one = this.windows.get(this.chosen) ?? this.sorted().at(-1);
    const figure = this.column.value;
    const rows = [...one.rows]
      .sort((a, b) => (b[figure] ?? -Infinity) - (a[figure] ?? -Infinity))
      .slice(0, ROWS_SHOWN);
    const cut = one.rows.length > rows.length ? `, the largest ${rows.length} of them below` : "";
    setText(
      this.note,
      `${clock(one.window_start)} – ${hour(one.window_end)} UTC: ` +
        some(one.rows.length, "row") +
        cut +
        (one.revision ? `; revision ${one.revision}, for late rows` : "") +
        (one.complete ? "." : "; the window is not complete, it began before the task."),
    );
    fill(this.rows, rowsTable(rows, "Result rows"));
  }

  /** The groups that are largest over all windows; without text columns the figure itself. */
  drawChart() {
    const figure = this.column.value;
    if (!figure) return;
    const windows = this.sorted();
    const sums = new Map();
    for (const one of windows)
      for (const row of one.rows) {
        const key = this.keyOf(row, figure);
        sums.set(key, (sums.get(key) ?? 0) + (row[figure] ?? 0));
      }
    const keys = [...sums]
      .sort((one, other) => other[1] - one[1])
      .slice(0, GROUPS_SHOWN)
      .map(([key]) => key);
    const lines = keys.map((key) =>
      windows.map(
        (one) => one.rows.find((row) => this.keyOf(row, figure) === key)?.[figure] ?? null,
      ),
    );
    this.chart.draw(
      windows.map((one) => one.window_start),
      lines,
      keys,
    );
  }

  keyOf(row, figure) {
    const parts = Object.entries(row).filter(
      ([name, item]) => !BOUNDS.includes(name) && typeof item !== "number",
    );
    return parts.map(([, item]) => String(item)).join(", ") || figure;
  }

  destroy() {
    this.chart.destroy();
  }
}
