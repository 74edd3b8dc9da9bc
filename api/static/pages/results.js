// The latest results of a task: one window as a table, and its largest groups over time.

import { get, taskPath } from "/static/api.js";
import { Chart } from "/static/chart.js";
import { fill, h, renew, setText } from "/static/dom.js";
import { clock, hour, number, short, some } from "/static/format.js";
import { rowsTable } from "/static/pages/rows.js";

const ROWS = 1_000; // of one request
const WINDOWS_KEPT = 120;
const ROWS_SHOWN = 20;
const GROUPS_SHOWN = 5; // lines in the chart

const NUMBERS = ["int64", "integer", "float64"];

export class Results {
  /** `task` as the API shows it; `describe` tells of it anew. */
  constructor(task) {
    this.task = task;
    this.windows = new Map(); // start/end/version -> {window_start, window_end, version, rows, ...}
    this.revised = new Map(); // start/end/version -> the revision for which it was asked again
    this.chosen = null;
    this.choice = h("select", { id: "window", on: { change: () => this.choose() } });
    this.column = h("select", { id: "column", on: { change: () => this.draw() } });
    this.figure = h(
      "div",
      { class: "field inline" },
      h("label", { for: "column" }, "Figure"),
      this.column,
    );
    this.chart = new Chart("Largest groups over time", { labels: [], format: short, height: 200 });
    this.chartNote = h("p", { class: "quiet" });
    this.note = h("p", { class: "quiet" });
    this.rows = h("div");
    this.body = h(
      "div",
      { hidden: true },
      this.figure,
      this.chart.element,
      this.chartNote,
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

  describe(task) {
    this.task = task;
  }

  async look(signal) {
    const found = await get(taskPath(this.task.name, `/results?limit=${ROWS}`), signal);
    for (const one of merged(found.windows)) this.windows.set(keyOf(one), one);
    for (const one of found.revised) await this.again(one, signal);
    for (const one of this.sorted().slice(0, -WINDOWS_KEPT)) {
      this.windows.delete(keyOf(one));
      this.revised.delete(keyOf(one));
    }
    if (this.windows.size) this.draw();
  }

  /** A window that was shown before, and that late rows have changed since. */
  async again(one, signal) {
    const key = keyOf(one);
    if (!this.windows.has(key) || this.revised.get(key) >= one.revision) return;
    const path = `/results?limit=${ROWS}&window_start=${one.window_start}&window_end=${one.window_end}`;
    const found = await get(taskPath(this.task.name, path), signal);
    this.revised.set(key, one.revision);
    const now = merged(found.windows).find((other) => keyOf(other) === key);
    if (now) this.windows.set(key, now);
    else this.windows.delete(key);
  }

  choose() {
    this.chosen = this.choice.value || null;
    this.drawRows();
  }

  /** The oldest first; where a new version began within a window, its part is the later one. */
  sorted() {
    return [...this.windows.values()].sort(byAge);
  }

  draw() {
    this.none.hidden = true;
    this.body.hidden = false;
    this.drawFigures();
    this.drawChoice();
    this.drawRows();
    this.drawChart();
  }

  /** The numbers that a group has; a number that it is grouped by is none of them. */
  drawFigures() {
    const { key = [], columns = [] } = this.task.output ?? {};
    const names = columns
      .filter((one) => NUMBERS.includes(one.type) && !key.includes(one.name))
      .map((one) => one.name);
    if (names.join() === this.names?.join()) return;
    this.names = names;
    fill(
      this.column,
      names.map((name) => h("option", { value: name }, name)),
    );
    this.column.value = names.find((name) => /count/.test(name)) ?? names.at(-1) ?? "";
    this.figure.hidden = !names.length;
  }

  drawChoice() {
    const options = this.sorted().reverse();
    renew(
      this.choice,
      h("option", { value: "" }, "the newest"),
      options.map((one) =>
        h("option", { value: keyOf(one), "data-key": keyOf(one) }, this.nameOf(one)),
      ),
    );
    if (this.windows.has(this.chosen)) return;
    this.chosen = null;
    this.choice.value = "";
  }

  nameOf(one, zone = "") {
    const version = one.version === this.task.version ? "" : `, version ${one.version}`;
    if (countsRows(one)) return `Window ${one.window_number} of partition ${one.partition}${version}`;
    if (one.window_start === null) return `Waiting in partition ${one.partition}${version}`;
    const local = this.task.plan?.window.zone ? one.rows[0]?.window_local : null;
    const begins = local ? `${local} (${clock(one.window_start)}` : clock(one.window_start);
    return `${begins} – ${hour(one.window_end)}${zone}${local ? ")" : ""}${version}`;
  }

  drawRows() {
    const one = this.windows.get(this.chosen) ?? this.sorted().at(-1);
    const figure = this.column.value;
    const rows = [...one.rows]
      .sort((a, b) => (b[figure] ?? -Infinity) - (a[figure] ?? -Infinity))
      .slice(0, ROWS_SHOWN);
    setText(
      this.note,
      `${this.nameOf(one, " UTC")}: ` +
        sizeOf(one, rows.length, figure) +
        (one.revision ? `; revision ${one.revision}, for late rows` : "") +
        lackOf(one) +
        ".",
    );
    renew(this.rows, rowsTable(rows, "Result rows"));
  }

  /** The groups that are largest over all windows of this version; without keys, the figure. */
  drawChart() {
    const figure = this.column.value;
    const windows = this.sorted().filter((one) => one.version === this.task.version);
    const problem = this.uncharted(windows);
    this.chart.element.hidden = problem !== null;
    setText(this.chartNote, problem ?? this.chartedOf(windows));
    if (problem !== null) return;
    const groups = windows.map((one) => this.groupsOf(one));
    const sums = new Map();
    for (const rows of groups)
      for (const [group, row] of rows) sums.set(group, (sums.get(group) ?? 0) + (row[figure] ?? 0));
    const largest = [...sums]
      .sort((one, other) => other[1] - one[1])
      .slice(0, GROUPS_SHOWN)
      .map(([group]) => group);
    this.chart.draw(
      windows.map(this.cumulates() ? (one) => one.window_end : (one) => one.window_start),
      largest.map((group) => groups.map((rows) => rows.get(group)?.[figure] ?? null)),
      largest.map((group) => labelOf(group) || figure),
    );
  }

  /** Why there is no chart; null: there is one. */
  uncharted(windows) {
    if (!this.names.length) return "The query selects no number, so nothing is charted.";
    if (windows.some(countsRows))
      return "Windows that count rows have no times of their own, so nothing is charted.";
    const names = this.task.output.columns.map((one) => one.name);
    const unnamed = this.keys().filter((name) => !names.includes(name));
    if (unnamed.length)
      return `The query groups by ${unnamed.join(", ")} without selecting it, so a chart could not tell its groups apart.`;
    if (!windows.length)
      return `No window of version ${this.task.version} has closed yet; the chart begins with the first one.`;
    return null;
  }

  chartedOf(windows) {
    const cut = windows.find((one) => one.truncated);
    if (!cut) return "";
    const read = number(cut.rows.length);
    return `Windows with more than ${read} rows are charted by the ${read} that were read: larger groups may be missing.`;
  }

  /** What the query groups by, besides the window. */
  keys() {
    const keys = this.task.output.key.slice(1);
    return this.cumulates() ? keys.slice(0, -1) : keys;
  }

  /** Whether windows begin together, and their ends tell them apart. */
  cumulates() {
    return Number.isFinite(this.task.plan?.window.step_ms);
  }

  /** The rows of a window by what they are grouped by; found once. */
  groupsOf(one) {
    const keys = this.keys();
    one.groups ??= new Map(
      one.rows.map((row) => [JSON.stringify(keys.map((key) => row[key])), row]),
    );
    return one.groups;
  }

  destroy() {
    this.chart.destroy();
  }
}

// Groups of a window that counts rows have times of their own.
const countsRows = (one) => Number.isInteger(one.window_number);
const keyOf = (one) =>
  countsRows(one)
    ? `${one.partition}/${one.window_number}/${one.version}`
    : `${one.window_start}/${one.window_end ?? one.partition}/${one.version}`;

/** The oldest first; each version numbers windows that count rows from 0 on. */
const byAge = (one, other) =>
  countsRows(one) && countsRows(other)
    ? one.version - other.version ||
      one.window_number - other.window_number ||
      one.partition - other.partition
    : one.window_end - other.window_end || one.version - other.version;

const labelOf = (group) =>
  JSON.parse(group)
    .map((item) => (item === null ? "NULL" : String(item)))
    .join(", ");

/** Windows as they come, but one that comes in a complete and an incomplete part is one. */
function merged(parts) {
  const found = new Map();
  for (const part of parts) {
    const one = found.get(keyOf(part)) ?? { ...part, revision: 0, rows: [], lacking: 0 };
    found.set(keyOf(part), {
      ...one,
      revision: Math.max(one.revision, part.revision),
      truncated: one.truncated || part.truncated,
      rows: [...one.rows, ...part.rows],
      lacking: one.lacking + (part.complete ? 0 : part.rows.length),
    });
  }
  return [...found.values()];
}

/** How many rows a window has, and which are shown. */
function sizeOf(one, shown, figure) {
  const rows = one.rows.length;
  const which = `${figure ? "largest" : "first"} ${shown}`;
  if (one.truncated)
    return (
      `more than ${some(rows, "row")}; below are the ${which} of ${number(rows)} that were read` +
      (figure ? ", others may be larger" : "")
    );
  return some(rows, "row") + (shown < rows ? `, the ${which} of them below` : "");
}

function lackOf(one) {
  if (!one.lacking) return "";
  const some = `${number(one.lacking)} of them ${one.lacking === 1 ? "is" : "are"} not`;
  const which = one.lacking === one.rows.length ? "none is" : some;
  return (
    `; ${which} complete: the window began before the task, was cut by a new version, or lacks ` +
    "rows that Kafka had deleted"
  );
}
