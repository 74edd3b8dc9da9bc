// Elements made by hand. Strings become text nodes, never markup: what users and rows say is shown
// as it is. Nothing in this folder uses innerHTML.

/**
 * An element. `properties`: `class`, `on` (event -> listener), `data` (dataset), other names are
 * attributes (true: present, false or null: absent). Children that are null or false are left out.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value))
        element.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value") {
      element.value = value;
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Put these children in the place of all that an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Change a text only where it differs, so that screen readers and the layout are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const FEW = 3; // so many columns fit on a narrow screen

/**
 * A table; one of many columns is a list of cards on a narrow screen. `columns`: `{title, number}`;
 * rows are lists of cells (nodes or texts).
 */
export function table(caption, columns, rows, { empty = "Nothing yet." } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h(
    "div",
    {
      class: columns.length > FEW ? "scroll many" : "scroll few",
      role: "region",
      "aria-label": caption,
      tabindex: "0",
    },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((one) =>
            h("th", { scope: "col", class: one.number ? "number" : null }, one.title),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((cells) => row(columns, cells)),
      ),
    ),
  );
}

/** One row of such a table. */
export function row(columns, cells) {
  return h(
    "tr",
    {},
    cells.map((cell, place) =>
      h(
        "td",
        { class: columns[place].number ? "number" : null, data: { title: columns[place].title } },
        cell,
      ),
    ),
  );
}

/** A list of facts; those whose value is null are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** The state of a task or a member as a coloured word. */
export function badge(state) {
  return h("span", { class: "badge", data: { state } }, state);
}

/** Tell something to everybody, screen readers included, for some seconds. */
export function say(text, { wrong = false } = {}) {
  const said = document.getElementById("said");
  said.classList.toggle("wrong", wrong);
  fill(said, text);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => fill(said), 8_000);
}

/** Ask before something that cannot be undone. Resolves to whether the answer was yes. */
export function confirm(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" },
      h("h2", { id: "dialog-title" }, title),
      h("p", { id: "dialog-text" }, text),
      h(
        "div",
        { class: "actions" },
        h(
          "button",
          { type: "button", autofocus: true, on: { click: () => dialog.close("") } },
          "Cancel",
        ),
        h(
          "button",
          { type: "button", class: "danger", on: { click: () => dialog.close("yes") } },
          yes,
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
