// Write a query: checked while it is typed, tried on the last seconds of its topic, registered.

import { Problem, call, events, get, taskPath } from "/static/api.js";
import { fill, h, say, setText, table } from "/static/dom.js";
import { bytes, clock, duration, hour, number, percent, rate, some } from "/static/format.js";
import { Field, Options } from "/static/pages/options.js";
import { rowsTable } from "/static/pages/rows.js";
import { SqlField } from "/static/pages/sql.js";
import { typeOf } from "/static/pages/streams.js";

const FATES = ["counted", "filtered", "bad", "future"];

const SECONDS = {
  name: "seconds",
  label: "Seconds to preview",
  usual: "10",
  size: "5",
  style: "field inline",
};

const CHECK_MS = 300; // after the last key

const OF_OPTION = /^option (\w+):/; // how the API begins to say what is wrong with one
const NOT_THE_QUERY = new Set([0, 401, 403, 429, 503]); // no key, no right, too often, not there

export async function showEditor(root, { name, stream, signal }) {
  const task = name ? await get(taskPath(name), signal) : null;
  const streams = (await get("/v1/streams", signal)).streams;
  const editor = new Editor(task, signal);
  fill(
    root,
    h("h1", {}, task ? `Change ${name}` : "New task"),
    streams.length
      ? null
      : h(
          "p",
          { class: "problem" },
          "No stream is declared yet: ",
          h("a", { href: "#/streams" }, "declare one"),
          " first.",
        ),
    editor.element,
    h("details", {}, h("summary", {}, "Streams and their fields"), streams.map(streamFacts)),
  );
  const first = streams.find((one) => one.name === stream) ?? streams[0];
  editor.sql.set(task?.sql ?? (first ? example(first) : ""));
  await editor.check();
}

function example(stream) {
  const key = Object.entries(stream.fields).find(([, type]) => type === "string")?.[0];
  return key
    ? `SELECT ${key}, count(*)\nFROM ${stream.name}\nGROUP BY ${key}\nWINDOWING 60 s`
    : `SELECT count(*)\nFROM ${stream.name}\nWINDOWING 60 s`;
}

function streamFacts(stream) {
  return h(
    "p",
    {},
    h("strong", {}, stream.name),
    " ",
    h(
      "span",
      { class: "fields" },
      Object.entries(stream.fields).map(([name, type]) =>
        h("span", {}, `${name} `, h("small", {}, typeOf(type))),
      ),
    ),
  );
}

class Editor {
  constructor(task, signal) {
    this.task = task;
    this.signal = signal;
    this.sql = new SqlField("sql", "Query", () => this.changed());
    this.name = h("input", {
      id: "name",
      autocomplete: "off",
      spellcheck: "false",
      value: task?.name ?? "",
      disabled: Boolean(task),
      on: { input: () => this.changed() },
    });
    this.options = new Options(task?.options ?? {}, () => this.changed());
    this.start = h(
      "select",
      { id: "start" },
      h("option", { value: "latest" }, "what comes from now on"),
      h("option", { value: "earliest" }, "all that the topic holds"),
    );
    this.output = h("div", { id: "output" });
    this.seconds = new Field(SECONDS, "", () => this.seconds.tell(""));
    this.heading = h("h2", { hidden: true }, "Preview");
    this.summary = h("p", { role: "status" });
    this.previewed = h("div");
    this.tryButton = h(
      "button",
      { type: "button", on: { click: () => this.preview() } },
      "Preview",
    );
    this.register = h(
      "button",
      { type: "submit", class: "main" },
      task ? "Make this the new version" : "Register",
    );
    this.element = h(
      "form",
      {
        class: "editor",
        novalidate: true,
        on: {
          submit: (event) => {
            event.preventDefault();
            this.send();
          },
        },
      },
      this.sql.element,
      h(
        "div",
        { class: "row" },
        h("div", { class: "field" }, h("label", { for: "name" }, "Name"), this.name),
        task
          ? null
          : h("div", { class: "field" }, h("label", { for: "start" }, "Count"), this.start),
        this.options.often,
      ),
      this.options.more,
      h("div", { class: "actions" }, this.tryButton, this.seconds.element, this.register),
      this.output,
      h(
        "section",
        { id: "preview", "aria-label": "Preview" },
        this.heading,
        this.summary,
        this.previewed,
      ),
    );
  }

  body() {
    return { sql: this.sql.text(), options: this.options.given() };
  }

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), CHECK_MS);
  }

  /** Show what is wrong, or what the results would look like. */
  async check() {
    this.checking?.abort();
    this.checking = new AbortController();
    const { signal } = this.checking;
    if (!this.sql.text().trim()) {
      this.clear();
      fill(this.output);
      return;
    }
    const named = this.name.value.trim() ? { name: this.name.value.trim() } : {};
    try {
      const found = await call("POST", "/v1/tasks/validate", {
        body: { ...this.body(), ...named },
        signal,
      });
      this.clear();
      fill(this.output, outputOf(found, Boolean(named.name)));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      this.wrong(error);
    }
  }

  /** Nothing is wrong. */
  clear() {
    this.sql.clear();
    this.options.clear();
  }

  /** Say what is wrong where it is: at an option, or in the query. */
  wrong(error) {
    if (this.options.tell(memberOf(error), error.message)) this.sql.clear();
    else if (NOT_THE_QUERY.has(error.status)) this.sql.tell(error);
    else this.sql.mark(error);
    fill(this.output);
  }

  async preview() {
    if (this.trying) return;
    this.trying = true; // a disabled button would lose the focus
    const progress = h("p");
    this.heading.hidden = false;
    this.summarise("Reading ...");
    fill(this.previewed, progress);
    const windows = [];
    const seconds = this.seconds.text();
    try {
      for await (const event of events("/v1/tasks/preview", {
        method: "POST",
        body: { ...this.body(), ...(seconds ? { seconds: Number(seconds) } : {}) },
        signal: this.signal,
      })) {
        const data = JSON.parse(event.data);
        if (event.name === "progress")
          setText(
            progress,
            `${number(data.messages)} of about ${number(data.messages_total)} messages ...`,
          );
        else if (event.name === "window") windows.push(data);
        else if (event.name === "problem") throw new Problem(data.status, data);
        else this.drawPreview(data, windows);
      }
    } catch (error) {
      if (this.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      if (memberOf(error) === SECONDS.name) this.seconds.tell(error.message);
      else if (error.line !== null || memberOf(error)) this.wrong(error);
      this.summarise(error.message, { wrong: true });
      fill(this.previewed);
    } finally {
      this.trying = false;
    }
  }

  /** The one line that screen readers say of a preview. */
  summarise(text, { wrong = false } = {}) {
    this.summary.classList.toggle("problem", wrong);
    setText(this.summary, text);
  }

  drawPreview(found, windows) {
    const { counts, predictions } = found;
    const suggested = predictions.suggested_delay_ms;
    const use = suggested === null ? null : `${suggested / 1_000}s`;
    const delay = this.options.fields.get("delay");
    const [summary = "No row was read.", ...notes] = counts.read
      ? [fatesOf(counts), ...found.notes]
      : found.notes;
    this.summarise(summary);
    fill(
      this.previewed,
      notes.map((note) => h("p", { class: "note" }, note)),
      h(
        "ul",
        { class: "predictions" },
        predictions.sentences.map((one) => h("li", {}, one)),
      ),
      use && (delay.text() || "0s") !== use
        ? h(
            "button",
            {
              type: "button",
              on: {
                click: () => {
                  delay.control.value = use;
                  this.changed();
                  say(`The delay is ${use} now.`);
                },
              },
            },
            `Use a delay of ${use}`,
          )
        : null,
      windows.some(isSession)
        ? sessionsTable(windows)
        : [...windows].reverse().map((one, at) => windowDetails(one, at === 0)),
      found.more_windows ? h("p", { class: "quiet" }, "... and older windows.") : null,
      found.rejected.length ? rejected(found.rejected) : null,
      counts.read ? details(predictions) : null,
    );
  }

  async send() {
    if (this.sending) return;
    const name = this.name.value.trim();
    if (!name) {
      say("Give the task a name.", { wrong: true });
      this.name.focus();
      return;
    }
    this.sending = true; // a disabled button would lose the focus
    clearTimeout(this.timer); // what is sent is checked by who takes it
    this.checking?.abort();
    try {
      if (this.task) {
        const headers = { "If-Match": `"${this.task.version}"` };
        const made = await call("PUT", taskPath(name), { body: this.body(), headers });
        say(`${name} is at version ${made.version}.`);
      } else {
        await call("POST", "/v1/tasks", {
          body: { name, start: this.start.value, ...this.body() },
        });
        say(`${name} runs.`);
      }
      location.hash = `#/tasks/${encodeURIComponent(name)}`;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.wrong(error);
      say(error.message, { wrong: true });
    } finally {
      this.sending = false;
    }
  }
}

/** Which option, or other member of the request, the API says is wrong. */
const memberOf = (error) => error.errors[0]?.member ?? OF_OPTION.exec(error.message)?.[1];

// -------------------------------------------------------------------------------- what is shown

function fatesOf(counts) {
  const parts = FATES.map((fate) => `${number(counts[fate])} ${fate}`);
  return `${some(counts.read, "row")}: ${parts.join(", ")}.`;
}

function outputOf(found, named) {
  const columns = [{ title: "column" }, { title: "type" }];
  const rows = found.output.columns.map((one) => [one.name, one.type]);
  return h(
    "details",
    { open: true },
    h(
      "summary",
      {},
      "The query is right: one row a window and group",
      named ? `, to topic ${found.output.topic}` : null,
    ),
    table("Columns of a result row", columns, rows),
  );
}

function windowDetails(one, open) {
  const name = countsRows(one)
    ? `Window ${one.window_number} of partition ${one.partition}`
    : `${clock(one.window_start)} – ${hour(one.window_end)} UTC`;
  const full = countsRows(one) && !one.complete ? ", not full" : "";
  return h(
    "details",
    { open },
    h("summary", {}, `${name}: ${some(one.groups, "group")}${full}`),
    rowsTable(one.rows, "Rows of the window"),
  );
}

const countsRows = (one) => Number.isInteger(one.window_number);

/** Whether it is a window of one group, which only its rows tell. */
const isSession = (one) => typeof one.complete === "boolean" && !countsRows(one);

/** The newest first, one a line. */
function sessionsTable(windows) {
  const lines = [...windows].reverse().flatMap((one) =>
    one.rows.map(({ window_start, window_end, ...row }) => ({
      begins: clock(window_start),
      ends: hour(window_end),
      ...row,
      " ": one.complete ? "" : "may have more rows",
    })),
  );
  return h(
    "details",
    { open: true },
    h("summary", {}, "Sessions (UTC)"),
    rowsTable(lines, "Sessions of the preview"),
  );
}

function rejected(rows) {
  const columns = [
    { title: "partition", number: true },
    { title: "offset", number: true },
    { title: "because" },
    { title: "row" },
  ];
  return h(
    "details",
    { open: true },
    h("summary", {}, "Rows that would not be counted"),
    table(
      "Rows that would not be counted",
      columns,
      rows.map((one) => [
        one.partition,
        one.offset,
        one.detail || one.reason,
        h("code", {}, one.sample),
      ]),
    ),
  );
}

function details(found) {
  const columns = [
    { title: "delay", number: true },
    { title: "late at most", number: true },
    { title: "late, key by key", number: true },
  ];
  const byKey = new Map(found.late_by_key.map((one) => [one.delay_ms, percent(one.share)]));
  return h(
    "details",
    {},
    h("summary", {}, "What is predicted"),
    found.late.length
      ? table(
          "Late rows by delay",
          columns,
          found.late.map((one) => [
            duration(one.delay_ms),
            percent(one.share),
            byKey.get(one.delay_ms) ?? "-",
          ]),
        )
      : null,
    h(
      "p",
      {},
      `${rate(found.rows_per_second)} rows, `,
      found.groups_per_window === null
        ? null
        : `${number(found.groups_per_window)} groups a window, `,
      `${bytes(found.redis_bytes)} in Redis (${bytes(found.redis_bytes_merged)} merged).`,
    ),
  );
}
