// All tasks: one request for the list, one stream for the figures of all of them.

import { follow, get, repeat } from "/static/api.js";
import { Chart, Ring } from "/static/chart.js";
import { badge, fill, h, renew, setText, table } from "/static/dom.js";
import { duration, number, rate, some } from "/static/format.js";

const LIST_MS = 10_000;

const COLUMNS = [
  { title: "task" },
  { title: "state" },
  { title: "rows", number: true },
  { title: "lag", number: true },
  { title: "watermark behind", number: true },
  { title: "close latency", number: true },
  { title: "query" },
];
const FIGURES_AT = 2; // in these columns

export async function showTasks(root, { signal, freshness }) {
  const rates = new Chart("Rows a second, all tasks", { format: rate });
  const lags = new Chart("Lag, all tasks (messages)", { format: number });
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "part of a name",
    autocomplete: "off",
  });
  const count = h("p", { class: "quiet", role: "status" });
  const list = h("div", {});
  fill(
    root,
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Tasks"),
      h("a", { class: "button", href: "#/new" }, "New task"),
    ),
    h("div", { class: "charts" }, rates.element, lags.element),
    h("div", { class: "field inline" }, h("label", { for: "search" }, "Search"), search, count),
    list,
  );
  signal.addEventListener("abort", () => [rates, lags].forEach((chart) => chart.destroy()));

  let tasks = [];
  const draw = () => drawList(list, count, tasks, search.value);
  search.addEventListener("input", draw);
  const ring = new Ring();
  const take = (figures) => {
    ring.add(figures.points);
    rates.draw(ring.times(), [ring.line("rows_per_second")]);
    lags.draw(ring.times(), [ring.line("lag")]);
    for (const row of list.querySelectorAll("tr[data-key]"))
      update(row.cells, figures.tasks[row.dataset.key]);
  };
  follow("/v1/figures", signal, take, freshness.of("charts and figures"));
  const look = async () => {
    tasks = (await get("/v1/tasks", signal)).tasks;
    draw();
  };
  await repeat(LIST_MS, signal, look, freshness.of("the list"));
}

function drawList(list, count, tasks, wanted) {
  const shown = tasks.filter((task) =>
    task.name.toLowerCase().includes(wanted.trim().toLowerCase()),
  );
  renew(
    list,
    table("Tasks", COLUMNS, shown.map(cellsOf), {
      keys: shown.map((task) => task.name),
      empty: tasks.length
        ? "No task has this name."
        : "No task is registered yet: make one with New task.",
    }),
  );
  setText(
    count,
    shown.length === tasks.length
      ? some(tasks.length, "task")
      : `${shown.length} of ${some(tasks.length, "task")}`,
  );
}

function cellsOf(task) {
  return [
    h("a", { href: `#/tasks/${encodeURIComponent(task.name)}` }, task.name),
    h(
      "span",
      {},
      badge(task.state),
      task.detail ? h("span", { class: "detail", title: task.detail }, task.detail) : null,
    ),
    ...figuresOf(task.figures ?? {}),
    h("code", { class: "one-line", title: task.sql }, task.sql.replace(/\s+/g, " ")),
  ];
}

const figuresOf = (point) => [
  rate(point.rows_per_second),
  number(point.lag),
  duration(point.watermark_delay_ms),
  duration(point.close_latency_ms),
];

function update(cells, point) {
  if (point) figuresOf(point).forEach((text, at) => setText(cells[FIGURES_AT + at], text));
}
