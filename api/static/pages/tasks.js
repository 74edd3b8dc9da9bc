// All tasks: one request for the list, one stream for the figures of all of them.

import { follow, get, repeat } from "/static/api.js";
import { Chart, Ring } from "/static/chart.js";
import { badge, fill, h, row, setText, table } from "/static/dom.js";
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

export async function showTasks(root, { signal }) {
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
  const cells = new Map();
  const draw = () => drawList(list, count, tasks, search.value, cells);
  search.addEventListener("input", draw);
  const ring = new Ring();
  follow("/v1/figures", signal, (figures) => {
    ring.add(figures.points);
    rates.draw(ring.times(), [ring.line("rows_per_second")]);
    lags.draw(ring.times(), [ring.line("lag")]);
    for (const [name, point] of Object.entries(figures.tasks)) update(cells.get(name), point);
  });
  await repeat(LIST_MS, signal, async () => {
    const found = (await get("/v1/tasks", signal)).tasks;
    const shape = (some) =>
      JSON.stringify(some.map((task) => [task.name, task.state, task.version]));
    const same = shape(found) === shape(tasks) && list.firstChild;
    tasks = found;
    if (!same) draw();
  });
}

function drawList(list, count, tasks, wanted, cells) {
  cells.clear();
  const shown = tasks.filter((task) =>
    task.name.toLowerCase().includes(wanted.trim().toLowerCase()),
  );
  const made = table(
    "Tasks",
    COLUMNS,
    shown.map(() => []),
    {
      empty: tasks.length
        ? "No task has such a name."
        : "No task is registered yet: make one with New task.",
    },
  );
  const body = made.querySelector("tbody");
  body?.replaceChildren(...shown.map((task) => taskRow(task, cells)));
  fill(list, made);
  setText(
    count,
    shown.length === tasks.length
      ? some(tasks.length, "task")
      : `${shown.length} of ${some(tasks.length, "task")}`,
  );
}

function taskRow(task, cells) {
  const own = { rate: h("span"), lag: h("span"), behind: h("span"), latency: h("span") };
  cells.set(task.name, own);
  if (task.figures) update(own, task.figures);
  return row(COLUMNS, [
    h("a", { href: `#/tasks/${encodeURIComponent(task.name)}` }, task.name),
    h(
      "span",
      {},
      badge(task.state),
      task.detail ? h("span", { class: "detail" }, ` ${task.detail}`) : null,
    ),
    own.rate,
    own.lag,
    own.behind,
    own.latency,
    h("code", { class: "one-line", title: task.sql }, task.sql.replace(/\s+/g, " ")),
  ]);
}

function update(cells, point) {
  if (!cells) return;
  setText(cells.rate, rate(point.rows_per_second));
  setText(cells.lag, number(point.lag));
  setText(cells.behind, duration(point.watermark_delay_ms));
  setText(cells.latency, duration(point.close_latency_ms));
}
