// Streams: what is declared, and a form to declare one.

import { Problem, call, get } from "/static/api.js";
import { confirm, fill, h, say, table } from "/static/dom.js";

const TYPES = [
  "string",
  "int64",
  "float64",
  "bool",
  "timestamp_ms",
  "timestamp_us",
  "timestamp_s",
  "timestamp_iso",
];
const FORMATS = ["json", "ndjson", "csv", "arrow"];
const RECORD_TYPES = {
  $key: "string",
  $timestamp: "timestamp_ms",
  $partition: "int64",
  $offset: "int64",
}; // of what a record has besides its message
const COLUMNS = [
  { title: "stream" },
  { title: "topic" },
  { title: "format" },
  { title: "event time" },
  { title: "fields" },
  { title: "" },
];

/** A field's type, and what of a record it is taken from, if it is not in the message. */
export const typeOf = (type) => (type.from ? `${type.type} from ${type.from}` : type);

export async function showStreams(root, { signal }) {
  const list = h("div");
  const look = async () => drawList(list, (await get("/v1/streams", signal)).streams, look);
  fill(
    root,
    h("h1", {}, "Streams"),
    h("p", {}, "A stream is a Kafka topic with declared fields; the topic must exist."),
    list,
    h("h2", {}, "Declare a stream"),
    form(look),
  );
  await look();
}

function drawList(list, streams, look) {
  const rows = streams.map((one) => [
    one.name,
    one.topic,
    one.format + (one.csv_header ? " with header" : ""),
    one.event_time,
    h(
      "span",
      { class: "fields" },
      Object.entries(one.fields).map(([name, type]) =>
        h("span", {}, `${name} `, h("small", {}, typeOf(type))),
      ),
    ),
    h(
      "div",
      { class: "actions" },
      h(
        "a",
        {
          class: "button",
          href: `#/new/${encodeURIComponent(one.name)}`,
          "aria-label": `New task over ${one.name}`,
        },
        "New task",
      ),
      h(
        "button",
        {
          type: "button",
          class: "danger",
          "aria-label": `Delete stream ${one.name}`,
          on: { click: () => remove(one.name, look) },
        },
        "Delete",
      ),
    ),
  ]);
  fill(list, table("Streams", COLUMNS, rows, { empty: "No stream is declared yet." }));
}

async function remove(name, look) {
  if (
    !(await confirm(
      `Delete stream ${name}?`,
      "The topic and its messages stay. A stream with tasks cannot be deleted.",
      "Delete",
    ))
  )
    return;
  try {
    await call("DELETE", `/v1/streams/${encodeURIComponent(name)}`);
    say(`Stream ${name} is deleted.`);
    await look();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    say(error.message, { wrong: true });
  }
}

// ---------------------------------------------------------------------------------- the form

function form(look) {
  const fields = h("tbody");
  const eventTime = h("select", { id: "event_time", required: true });
  const renew = () => renewTimes(fields, eventTime);
  const add = (name, type) => {
    fields.append(fieldRow(name, type, renew));
    renew();
  };
  const made = h(
    "form",
    { class: "form", novalidate: true },
    h("p", { class: "problem", role: "alert", id: "form-problem" }),
    input("name", "Name"),
    input("topic", "Topic"),
    h(
      "div",
      { class: "field" },
      h("label", { for: "format" }, "Format"),
      h(
        "select",
        { id: "format" },
        FORMATS.map((one) => h("option", {}, one)),
      ),
      problemOf("format"),
    ),
    h(
      "div",
      { class: "field check" },
      h("input", { type: "checkbox", id: "csv_header" }),
      h("label", { for: "csv_header" }, "Each CSV message begins with a header"),
      problemOf("csv_header"),
    ),
    input("csv_delimiter", "CSV delimiter (\\t is a tab)", { required: false, placeholder: "," }),
    input("csv_quote", "CSV quote", { required: false, placeholder: '"' }),
    h(
      "fieldset",
      {},
      h("legend", {}, "Fields"),
      h(
        "div",
        { class: "wide" },
        h(
          "table",
          { class: "plain" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "name"),
              h("th", { scope: "col" }, "type"),
              h("th", { scope: "col" }, "from"),
              h("th", {}, h("span", { class: "hidden" }, "remove")),
            ),
          ),
          fields,
        ),
      ),
      h(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              add("", "string");
              fields.lastChild.querySelector("input").focus();
            },
          },
        },
        "Add a field",
      ),
      problemOf("fields"),
    ),
    h(
      "div",
      { class: "field" },
      h("label", { for: "event_time" }, "Event time"),
      eventTime,
      problemOf("event_time"),
    ),
    h(
      "div",
      { class: "field check" },
      h("input", { type: "checkbox", id: "record_time" }),
      h("label", { for: "record_time" }, "Ignore Kafka's time of the record"),
      problemOf("record_time"),
    ),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Declare")),
  );
  add("timestamp", "timestamp_ms");
  add("", "string");
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    declare(made, fields, look);
  });
  return made;
}

const problemOf = (id) => h("p", { class: "problem", id: `${id}-problem`, "aria-live": "polite" });

function input(id, label, attributes = { required: true }) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    h("input", {
      id,
      ...attributes,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `${id}-problem`,
    }),
    problemOf(id),
  );
}

function fieldRow(name, type, renew) {
  const types = h(
    "select",
    { class: "field-type", "aria-label": "Type of the field", on: { change: renew } },
    TYPES.map((one) => h("option", { selected: one === type }, one)),
  );
  const choose = ({ target }) => {
    types.value = RECORD_TYPES[target.value] ?? types.value;
    types.disabled = Boolean(target.value);
    renew();
  };
  const made = h(
    "tr",
    {},
    h(
      "td",
      {},
      h("input", {
        class: "field-name",
        "aria-label": "Name of the field",
        value: name,
        autocomplete: "off",
        spellcheck: "false",
        on: { input: renew },
      }),
    ),
    h("td", {}, types),
    h(
      "td",
      {},
      h(
        "select",
        {
          class: "field-from",
          "aria-label": "What the field is taken from",
          on: { change: choose },
        },
        h("option", { value: "" }, "the message"),
        Object.keys(RECORD_TYPES).map((one) => h("option", {}, one)),
      ),
    ),
    h(
      "td",
      {},
      h(
        "button",
        {
          type: "button",
          "aria-label": "Remove the field",
          on: {
            click: () => {
              made.remove();
              renew();
            },
          },
        },
        "×",
      ),
    ),
  );
  return made;
}

const declared = (fields) =>
  [...fields.rows]
    .map((one) => {
      const [name, type, from] = ["name", "type", "from"].map(
        (part) => one.querySelector(`.field-${part}`).value,
      );
      return [name.trim(), from ? { type, from } : type];
    })
    .filter(([name]) => name);

const isTime = (type) => (type.type ?? type).startsWith("timestamp");

/** As JSON, in the order of the rows: an object puts names that are numbers first. */
const inOrder = (pairs) =>
  `{${pairs.map((pair) => pair.map((one) => JSON.stringify(one)).join(":")).join()}}`;

function renewTimes(fields, select) {
  const chosen = select.value;
  const times = declared(fields).filter(([, type]) => isTime(type));
  const names = new Set([...times.map(([name]) => name), "$timestamp"]);
  fill(
    select,
    [...names].map((name) => h("option", {}, name)),
  );
  if (names.has(chosen)) select.value = chosen;
}

async function declare(made, fields, look) {
  for (const place of made.querySelectorAll(".problem")) fill(place);
  for (const marked of made.querySelectorAll("[aria-invalid]"))
    marked.removeAttribute("aria-invalid");
  const get = (id) => made.querySelector(`#${id}`);
  const pairs = declared(fields);
  const twice = pairs.find(([name], at) => pairs.findIndex(([other]) => other === name) !== at);
  if (twice) return wrong(made, "fields", `Two fields are called ${twice[0]}.`);
  if (!get("name").value.trim()) return wrong(made, "name", "Give the stream a name.");
  if (!get("topic").value.trim()) return wrong(made, "topic", "Name the Kafka topic.");
  if (!get("event_time").value)
    return wrong(made, "fields", "One field must be a timestamp: the time of the event.");
  const others = {
    topic: get("topic").value.trim(),
    format: get("format").value,
    event_time: get("event_time").value,
    csv_header: get("csv_header").checked,
    csv_delimiter: get("csv_delimiter").value.replace("\\t", "\t") || undefined,
    csv_quote: get("csv_quote").value || undefined,
    record_time: get("record_time").checked ? "ignore" : undefined,
  };
  const body = `{"fields":${inOrder(pairs)},${JSON.stringify(others).slice(1)}`;
  const name = get("name").value.trim();
  try {
    await call("PUT", `/v1/streams/${encodeURIComponent(name)}`, { body });
    say(`Stream ${name} is declared.`);
    await look();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    wrong(made, memberOf(error), error.message);
  }
}

/** Which part of the form a refusal is about, as its sentence begins with the member. */
function memberOf(error) {
  const named = error.errors[0]?.member.split(".")[0];
  if (named) return named;
  if (/cannot be the name/.test(error.message)) return "name";
  const first = error.message.split(" ")[0];
  return first === "field" ? "fields" : first;
}

function wrong(made, member, text) {
  const place =
    made.querySelector(`#${CSS.escape(member)}-problem`) ?? made.querySelector("#form-problem");
  fill(place, text);
  const control = made.querySelector(`#${CSS.escape(member)}`);
  control?.setAttribute("aria-invalid", "true");
  control?.focus();
}
