// The key of whoever looks, where the API asks for one. It is kept for this tab only, goes with
// each request as a header, and never into an address: addresses are logged and shared.

import { h, setText } from "/static/dom.js";

const KEPT_AS = "mars-key";
const WRITABLE = /^[\x21-\x7e]+$/; // what a header can hold
const NONE_YET =
  "This Mars asks for a key; an admin makes them. A reader's key lets you look, an operator's " +
  "key also registers, pauses and deletes tasks.";
const NO_KEY_TEXT = "That is not a key: a key is mars_ and then letters and digits.";

let asking = null; // the one dialog, for all requests that wait for its answer
let declined = false;

/** The key to show, null if there is none. */
export const currentKey = () => sessionStorage.getItem(KEPT_AS);

/** Whether somebody was asked for a key and gave none: then nothing is asked for by itself. */
export const isDeclined = () => declined;

/** The headers that show a key. The second one: this is a page, which asks for keys itself. */
export function headersOf(key) {
  const asked = { "X-Requested-With": "XMLHttpRequest" };
  return key === null ? asked : { ...asked, Authorization: `Bearer ${key}` };
}

/** Ask for a key, saying what is wrong with the last one. Resolves to whether one was given. */
export async function askForKey(problem = null) {
  if (declined) return false;
  asking ??= ask(problem);
  return asking;
}

async function ask(problem) {
  const said = problem ?? NONE_YET;
  const key = await dialog(said[0].toUpperCase() + said.slice(1), problem !== null);
  if (key !== null) sessionStorage.setItem(KEPT_AS, key);
  else if (problem !== null) sessionStorage.removeItem(KEPT_AS); // it opens nothing
  declined = currentKey() === null;
  asking = null;
  showButton();
  return key !== null;
}

/** The button in the bar: there once a key was asked for. `renew` shows the page again. */
export function offerKeys(renew) {
  button().addEventListener("click", async () => {
    declined = false;
    if (await askForKey()) renew();
  });
  showButton();
}

const button = () => document.getElementById("key");

function showButton() {
  button().hidden = !declined && currentKey() === null;
  button().textContent = declined ? "Enter a key" : "Change key";
}

function dialog(text, wrong) {
  return new Promise((resolve) => {
    const input = h("input", {
      id: "key-text",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      autofocus: true,
      "aria-describedby": "key-problem",
      "aria-invalid": wrong ? "true" : null,
    });
    const asked = h(
      "dialog",
      { class: "keys", "aria-labelledby": "key-title", "aria-describedby": "key-problem" },
      h(
        "form",
        { novalidate: true },
        h("h2", { id: "key-title" }, "A key is needed"),
        h("p", { id: "key-problem", class: wrong ? "problem" : null }, text),
        h("div", { class: "field" }, h("label", { for: "key-text" }, "Key"), input),
        h("p", { class: "quiet" }, "It is kept until this tab is closed."),
        h(
          "div",
          { class: "actions" },
          h("button", { type: "button", on: { click: () => asked.close() } }, "Cancel"),
          h("button", { type: "submit", class: "main" }, "Use this key"),
        ),
      ),
    );
    let given = null;
    asked.addEventListener("submit", (event) => {
      event.preventDefault();
      const found = input.value.trim();
      if (WRITABLE.test(found)) {
        given = found;
        asked.close();
      } else {
        input.setAttribute("aria-invalid", "true");
        setText(asked.querySelector("#key-problem"), NO_KEY_TEXT);
        input.focus();
      }
    });
    asked.addEventListener("close", () => {
      asked.remove();
      resolve(given);
    });
    document.body.append(asked);
    asked.showModal();
  });
}
