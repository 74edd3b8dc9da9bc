// The options of a task as fields of a form. An empty field leaves its option to the default, which
// stands in it; what is wrong with an option is said at its field.

import { h, setText } from "/static/dom.js";

const OFTEN = [
  { name: "delay", label: "Delay (wait for stragglers)", usual: "0s" },
  { name: "idle_after", label: "Idle after", usual: "5s" },
];
const SELDOM = [
  { name: "late", label: "Rows that come late", usual: "drop", choices: ["drop", "revise"] },
  { name: "lateness", label: "Lateness (revise them for)", usual: "10min" },
  { name: "future_limit", label: "Furthest into the future", usual: "5min" },
  { name: "max_keys", label: "Most groups of a window", usual: "no limit" },
  { name: "over_max_keys", label: "Groups over that", usual: "fail", choices: ["fail", "fold"] },
  {
    name: "watermark",
    label: "Windows close by",
    usual: "partition",
    choices: ["partition", "bucket", "key"],
  },
  { name: "key_lag", label: "Key lag (behind the partitions)", usual: "1min" },
  {
    name: "emit",
    label: "Groups of windows that begin together",
    usual: "all",
    choices: ["all", "changed"],
  },
  { name: "buckets", label: "Buckets its groups lie in", usual: "all", choices: ["all", "one"] },
  { name: "output_topic", label: "Topic of the results", usual: "mars.results.NAME" },
];

/** A text or a choice, and what is wrong with it. `usual` holds where it is left empty. */
export class Field {
  constructor({ name, label, usual, choices, size, style = "field" }, value, changed) {
    const properties = {
      id: name,
      "aria-describedby": `${name}-problem`,
      on: { input: changed },
    };
    this.control = choices
      ? h(
          "select",
          properties,
          h("option", { value: "" }, `${usual} (default)`),
          choices.map((one) => h("option", { value: one }, one)),
        )
      : h("input", {
          ...properties,
          placeholder: usual,
          size,
          autocomplete: "off",
          spellcheck: "false",
        });
    this.control.value = value;
    this.problem = h("p", { class: "problem", id: `${name}-problem`, "aria-live": "polite" });
    this.element = h(
      "div",
      { class: style },
      h("label", { for: name }, label),
      this.control,
      this.problem,
    );
  }

  text() {
    return this.control.value.trim();
  }

  /** Say what is wrong; nothing, if the text is empty. */
  tell(text) {
    if (text) this.control.setAttribute("aria-invalid", "true");
    else this.control.removeAttribute("aria-invalid");
    setText(this.problem, text);
  }
}

export class Options {
  /** `registered` are those of the task so far, by name. */
  constructor(registered, changed) {
    this.registered = registered;
    this.fields = new Map(
      [...OFTEN, ...SELDOM].map((one) => [
        one.name,
        new Field(one, String(registered[one.name] ?? ""), changed),
      ]),
    );
    const elements = (some) => some.map(({ name }) => this.fields.get(name).element);
    this.often = elements(OFTEN);
    this.more = h(
      "details",
      { open: SELDOM.some(({ name }) => name in registered) },
      h("summary", {}, "More options"),
      h("div", { class: "row" }, elements(SELDOM)),
    );
  }

  /** Those that are set; one that was not touched stays as it was written. */
  given() {
    const given = { ...this.registered };
    for (const [name, field] of this.fields) {
      const text = field.text();
      if (!text) delete given[name];
      else if (text !== String(given[name])) given[name] = text;
    }
    return given;
  }

  /** Say what is wrong with one of them, and nothing of the others; false: there is no such. */
  tell(name, text) {
    const wrong = this.fields.get(name);
    if (wrong && this.more.contains(wrong.element)) this.more.open = true;
    for (const field of this.fields.values()) field.tell(field === wrong ? text : "");
    return Boolean(wrong);
  }

  /** Nothing is wrong with any. */
  clear() {
    this.tell(null, "");
  }
}
