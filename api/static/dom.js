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

/**
 * Make an element hold what `fill` would put there, changing only what differs: the focus, a
 * selection, scrolled tables and opened details stay. What it holds already is known again by its
 * `data-key` (a row or an item that may come, go and move), else by its place. It keeps its
 * listeners, so new ones are not heard.
 */
export function renew(element, ...children) {
  const focused = document.activeElement;
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  renewChildren(element, wanted);
  if (element.contains(focused)) focused.focus({ preventScroll: true }); // what moves loses it
  return element;
}

function renewChildren(element, wanted) {
  const old = [...element.childNodes];
  const nodes = [...wanted.childNodes].map((node) => {
    const at = old.findIndex((other) => isSame(other, node));
    if (at < 0) return node;
    const [kept] = old.splice(at, 1);
    renewNode(kept, node);
    return kept;
  });
  for (const node of old) node.remove();
  nodes.forEach((node, at) => {
    const there = element.childNodes[at] ?? null;
    if (there !== node) element.insertBefore(node, there);
  });
}

const isSame = (one, other) =>
  one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;

function renewNode(node, wanted) {
  if (node.nodeType === Node.TEXT_NODE) {
    renewText(node, wanted.data);
    return;
  }
  const names = new Set([...node.getAttributeNames(), ...wanted.getAttributeNames()]);
  names.delete("open"); // is up to who reads
  for (const name of names) {
    const value = wanted.getAttribute(name);
    if (value === null) node.removeAttribute(name);
    else if (value !== node.getAttribute(name)) node.setAttribute(name, value);
  }
  renewChildren(node, wanted);
}

/** Change a text from where it differs to where it does not: a selection of all of it stays. */
function renewText(node, text) {
  const old = node.data;
  if (old === text) return;
  const shorter = Math.min(old.length, text.length);
  let first = 0;
  while (first < shorter && old[first] === text[first]) first += 1;
  let last = 0;
  while (last < shorter - first && old.at(-1 - last) === text.at(-1 - last)) last += 1;
  node.replaceData(first, old.length - first - last, text.slice(first, text.length - last));
}

/** Change a text only where it differs, so that screen readers and the layout are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) renew(element, text);
}

const FEW = 3; // so many columns fit on a narrow screen

/**
 * A table; one of many columns is a list of cards on a narrow screen, where only the explicit roles
 * say that it is a table. `columns`: `{title, number}`; rows are lists of cells (nodes or texts),
 * `keys` one for each row if they may move.
 */
export function table(caption, columns, rows, { empty = "Nothing yet.", keys = [] } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h(
    "div",
    {
      class: columns.length > FEW ? "scroll many" : "scroll few",
      role: "region",
      "aria-label": caption,
      tabindex: "0",
      "data-key": caption,
    },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          columns.map((one) =>
            h(
              "th",
              { role: "columnheader", scope: "col", class: one.number ? "number" : null },
              one.title,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map((cells, at) => row(columns, cells, keys[at])),
      ),
    ),
  );
}

function row(columns, cells, key) {
  return h(
    "tr",
    { role: "row", "data-key": key },
    cells.map((cell, place) =>
      h(
        "td",
        {
          role: "cell",
          class: columns[place].number ? "number" : null,
          data: { title: columns[place].title },
        },
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
    known.map(([name, value]) =>
      h("div", { "data-key": name }, h("dt", {}, name), h("dd", {}, value)),
    ),
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

/** Ask before something that stops results, or begins them again. Resolves to whether yes was said. */
export function confirm(title, text, yes, { danger = true } = {}) {
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
          {
            type: "button",
            class: danger ? "danger" : null,
            on: { click: () => dialog.close("yes") },
          },
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
