// One task: how it goes, why no result comes, what came, and what can be done with it.

import { Problem, call, follow, get, repeat, taskPath } from "/static/api.js";
import { Chart, Ring } from "/static/chart.js";
import { badge, confirm, facts, fill, h, renew, say, setText, table } from "/static/dom.js";
import { clock, duration, hour, number, rate, some } from "/static/format.js";
import { rowsTable } from "/static/pages/rows.js";
import { Results } from "/static/pages/results.js";

const LOOK_MS = 3_000;
const OPEN_ROWS = 10; // of an open window

const VERSION_STATES = {
  waiting: "begins soon: the leader decides where",
  active: "current",
  closing: "closing its open windows",
  closed: "all windows closed",
};

const CHARTS = [
  ["rows_per_second", "Rows a second", rate],
  ["lag", "Lag (messages)", number],
  ["watermark_delay_ms", "Watermark behind the clock", duration],
  ["close_latency_ms", "Close latency", duration],
];

export async function showTask(root, { name, signal, freshness }) {
  const task = await get(taskPath(name), signal);
  const charts = CHARTS.map(([figure, title, format]) => [figure, new Chart(title, { format })]);
  const parts = {
    task,
    toggle: h("button", { type: "button" }),
    state: h("p", { class: "state" }),
    why: h("section", { "aria-label": "Why" }),
    charts: charts.map(([, chart]) => chart),
    results: new Results(task),
    open: h("div"),
    ledger: h("div"),
    about: h("div"),
  };
  const look = async () => drawTask(parts, await get(taskPath(name), signal));
  fill(root, layout(parts));
  drawTask(parts, task);
  signal.addEventListener("abort", () =>
    [...parts.charts, parts.results].forEach((one) => one.destroy()),
  );
  const ring = new Ring();
  const take = (figures) => {
    ring.add(figures.points);
    for (const [figure, chart] of charts) chart.draw(ring.times(), [ring.line(figure)]);
  };
  follow(taskPath(name, "/figures"), signal, take, freshness.of("charts"));
  const again = (part, work) => repeat(LOOK_MS, signal, work, freshness.of(part));
  try {
    await Promise.all([
      again("state and ledger", look),
      again("why", async () => drawWhy(parts.why, await get(taskPath(name, "/why"), signal))),
      again("results", () => parts.results.look(signal)),
      again("open windows", async () => {
        if (parts.task.state === "failed") drawNoneOpen(parts.open);
        else drawOpen(parts.open, await get(taskPath(name, `/windows?limit=${OPEN_ROWS}`), signal));
      }),
    ]);
  } catch (error) {
    throw error.status === 404 ? new Problem(404, { detail: deleted(parts.task) }) : error;
  }
}

function layout(parts) {
  return [
    h("div", { class: "head" }, h("h1", {}, parts.task.name), actions(parts)),
    parts.state,
    parts.why,
    h(
      "div",
      { class: "charts" },
      parts.charts.map((chart) => chart.element),
    ),
    h("h2", {}, "Latest results"),
    parts.results.element,
    h("h2", {}, "Open windows"),
    parts.open,
    h("h2", {}, "Where rows went"),
    parts.ledger,
    h("h2", {}, "Query"),
    parts.about,
  ];
}

const deleted = (task) =>
  `${task.name} was deleted meanwhile. Its results stay in ${task.output?.topic ?? "Kafka"}.`;

// ------------------------------------------------------------------------------------ the task

function drawTask(parts, task) {
  parts.task = task;
  parts.results.describe(task);
  setText(parts.toggle, goes(task) ? "Pause" : "Resume");
  renew(
    parts.state,
    badge(task.state),
    ` version ${task.version} over stream ${task.stream}`,
    // Why a task has failed is said right below, with what to do.
    task.detail && task.state !== "failed"
      ? h("span", { class: "problem" }, ` ${task.detail}`)
      : null,
    task.missing.length ? h("span", { class: "problem" }, ` ${task.missing.join(" ")}`) : null,
    task.backfill ? backfill(task.backfill) : null,
  );
  renew(
    parts.ledger,
    task.ledger ? ledger(task.ledger) : h("p", { class: "quiet" }, "Kafka does not answer."),
  );
  renew(parts.about, about(task));
}

const goes = (task) => task.state === "running" || task.state === "backfilling";

/** What can be done with the task as it was seen last. */
function actions(parts) {
  const { name } = parts.task;
  act(parts.toggle, async () => {
    const pausing = goes(parts.task);
    const asked = pausing ? askToPause(parts.task) : askToResume(parts.task);
    if (!(await asked)) return;
    drawTask(parts, await call("POST", taskPath(name, pausing ? "/pause" : "/resume")));
    say(
      pausing
        ? `${name} takes no more rows until it is resumed.`
        : `${name} goes on where it stopped.`,
    );
  });
  return h(
    "div",
    { class: "actions" },
    parts.toggle,
    h("a", { class: "button", href: `#/tasks/${encodeURIComponent(name)}/edit` }, "Change"),
    act(h("button", { type: "button", class: "danger" }, "Delete"), () => remove(parts.task)),
  );
}

/** Let a button do some work, once at a time. */
function act(button, work) {
  let busy = false; // a disabled button would lose the focus
  button.addEventListener("click", async () => {
    if (busy) return;
    busy = true;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      say(error.message, { wrong: true });
    } finally {
      busy = false;
    }
  });
  return button;
}

const askToPause = ({ name }) =>
  confirm(
    `Pause ${name}?`,
    `No more results come, and open windows stay open, until it is resumed. It then reads what came
    meanwhile; Kafka must keep those rows for so long.`,
    "Pause",
  );

const askToResume = ({ name }) =>
  confirm(
    `Resume ${name}?`,
    `It goes on where it stopped, and reads what came meanwhile. Rows that Kafka no longer has are
    reported, and their windows marked as not complete.`,
    "Resume",
    { danger: false },
  );

async function remove(task) {
  const topic = task.output?.topic ?? "Kafka";
  const text = `Open windows of ${task.name} are given up. Results that it wrote stay in ${topic}.`;
  if (!(await confirm(`Delete ${task.name}?`, text, "Delete"))) return;
  await call("DELETE", taskPath(task.name));
  say(`${task.name} is deleted; its results stay.`);
  location.hash = "#/";
}

function backfill(found) {
  const said = `History: ${found.percent} % of ${number(found.rows_total)}`;
  const end = found.expected_end ? `, done about ${hour(found.expected_end)} UTC` : "";
  return h(
    "span",
    { class: "backfill" },
    h("progress", { max: 100, value: String(found.percent), "aria-label": "History" }),
    ` ${said}${end}`,
  );
}

function ledger(found) {
  const fates = ["counted", "filtered", "bad", "future", "late"];
  const rows = fates.map((fate) => [fate, number(found[fate]), share(found[fate], found.read)]);
  const columns = [
    { title: "rows" },
    { title: "number", number: true },
    { title: "share", number: true },
  ];
  return [
    h(
      "p",
      {},
      `${number(found.read)} rows read. Of the ${number(found.counted)} counted, `,
      `${number(found.emitted)} are emitted and ${number(found.open)} lie in open windows.`,
    ),
    table("Where rows went", columns, rows),
  ];
}

const share = (part, whole) => (whole ? `${number((part / whole) * 100)} %` : "–");

function shapeOf(window) {
  const every = window.kind !== "tumbling" ? ` every ${window.slide}` : "";
  const offset = window.offset_ms ? `, ${duration(window.offset_ms)} later` : "";
  const zone = window.zone ? `, ${window.zone}` : "";
  return `${window.kind}, ${window.size}${every}${offset}${zone}`;
}

function closing(options) {
  return [
    ["Delay", duration(options.delay_ms)],
    ["Idle after", duration(options.idle_after_ms)],
    [
      "Late rows",
      options.late === "revise"
        ? `revise their windows for ${duration(options.lateness_ms)}`
        : "are dropped and named",
    ],
    [
      "Windows close by",
      options.watermark === "partition"
        ? "the slowest partition"
        : `${options.watermark}, ${duration(options.key_lag_ms)} after the partitions at the latest`,
    ],
  ];
}

function about(task) {
  const plan = task.plan;
  const versions = [
    { title: "version", number: true },
    { title: "made" },
    { title: "state" },
    { title: "query" },
  ];
  return [
    h("pre", { class: "sql", tabindex: "0" }, task.sql),
    plan
      ? facts([
          ["Topic", plan.topic],
          ["Results", task.output?.topic],
          ["Windows", shapeOf(plan.window)],
          ["Groups by", plan.keys.map((key) => key.expression).join(", ") || "nothing"],
          ["Aggregates", plan.aggregates.join(", ")],
          ["Where", plan.filter],
          ["Having", plan.having],
          [
            "Order",
            plan.order_by
              .map((one) => `${one.expression}${one.descending ? " DESC" : ""}`)
              .join(", "),
          ],
          ["Limit", plan.limit],
          ["Future limit", duration(plan.options.future_limit_ms)],
          ...(plan.window.kind === "counting" ? [] : closing(plan.options)),
          ["Buckets", plan.options.buckets],
        ])
      : h("p", { class: "problem" }, "This release cannot read the query."),
    h("h3", {}, "Versions"),
    table(
      "Versions",
      versions,
      [...task.versions].reverse().map((one) => [
        one.version,
        `${clock(one.created)} UTC`,
        VERSION_STATES[one.state],
        h("code", { class: "one-line", title: one.sql }, one.sql),
      ]),
    ),
  ];
}

// ----------------------------------------------------------------------------- why, windows

function drawWhy(place, why) {
  const columns = [
    { title: "window (UTC)" },
    { title: "rows", number: true },
    { title: "closes about" },
    { title: "waits for" },
    { title: "because" },
    { title: "member" },
    { title: "lag", number: true },
  ];
  const rows = why.windows.map((one) => [
    numbered(one) ?? `${hour(one.window_start)}–${hour(one.window_end)}`,
    number(one.rows),
    hour(one.expected_close),
    waitsFor(one.held_by),
    one.held_by.reason,
    one.held_by.member ?? "–",
    number(one.held_by.lag),
  ]);
  const dropped = why.dropped.bad + why.dropped.future + why.dropped.late;
  const samples = [
    { title: "partition", number: true },
    { title: "offset", number: true },
    { title: "rows", number: true },
    { title: "reason" },
  ];
  renew(
    place,
    h("p", { class: "why" }, why.summary),
    h(
      "details",
      {},
      h(
        "summary",
        {},
        `Open windows: ${why.windows.length + why.more}; rows not counted: ${number(dropped)}`,
      ),
      table("Open windows and what they wait for", columns, rows, { empty: "No window is open." }),
      dropped
        ? table(
            "Rows that were not counted",
            samples,
            why.dropped.samples.map((one) => [
              one.partition ?? "–",
              one.offset,
              number(one.rows),
              one.reason,
            ]),
          )
        : null,
    ),
  );
}

function waitsFor(held) {
  if (held.lane?.includes("@")) return `backfill ${held.lane}`;
  if (held.partition !== null) return `partition ${held.partition}`;
  return held.bucket === null ? "–" : `bucket ${held.bucket}`;
}

/** Which window it is where they count rows; null where they go by time. */
const numbered = (one) =>
  (one.window_number ?? null) === null
    ? null
    : `window ${one.window_number} of partition ${one.partition}`;

const drawNoneOpen = (place) =>
  renew(place, h("p", { class: "quiet" }, "Those of a task that has failed are not shown."));

function drawOpen(place, found) {
  renew(
    place,
    found.windows.length ? null : h("p", { class: "quiet" }, "No window is open."),
    found.windows.map((one) =>
      h(
        "details",
        { "data-key": `${numbered(one) ?? `${one.window_start}/${one.window_end}`}/${one.version}` },
        h(
          "summary",
          {},
          `${numbered(one) ?? `${clock(one.window_start)} – ${hour(one.window_end)} UTC`}: `,
          `${some(one.groups, "group")} so far`,
          one.complete ? null : " (not complete)",
        ),
        rowsTable(one.rows, "Groups so far"),
        one.groups > one.rows.length
          ? h("p", { class: "quiet" }, `... and ${number(one.groups - one.rows.length)} more.`)
          : null,
      ),
    ),
    found.more ? h("p", { class: "quiet" }, `... and ${found.more} more windows.`) : null,
  );
}
