// A field for SQL that underlines where it is wrong. Behind the text lies a copy of it, invisible
// but for a mark at the place of the problem; both have the same font, size and wrapping.

import { fill, h, setText } from "/static/dom.js";

const WORD = /^[\p{L}\p{N}_.]+|^\S/u; // what is underlined: the word, or one character

export class SqlField {
  constructor(id, label, changed) {
    this.area = h("textarea", {
      id,
      rows: "8",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      "aria-describedby": `${id}-problem`,
    });
    this.copy = h("pre", { class: "copy", "aria-hidden": "true" });
    this.problem = h("p", { class: "problem", id: `${id}-problem`, role: "status" });
    this.area.addEventListener("input", () => {
      this.paint(null);
      changed();
    });
    this.area.addEventListener("scroll", () => this.align());
    this.element = h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      h("div", { class: "sqlfield" }, this.copy, this.area),
      this.problem,
    );
  }

  text() {
    return this.area.value;
  }

  set(text) {
    this.area.value = text;
    this.paint(null);
  }

  /** Nothing is wrong. */
  clear() {
    this.show("", null);
    this.area.removeAttribute("aria-invalid");
  }

  /** Say what went wrong with something else than the text. */
  tell(problem) {
    this.show(problem.message, null);
    this.area.removeAttribute("aria-invalid");
  }

  /** Underline the place of a problem, if it has one, and say it. */
  mark(problem) {
    const { line, column, message } = problem;
    if (line === null) this.show(message, null);
    else this.show(`Line ${line}, column ${column}: ${message}`, this.span(line, column));
    this.area.setAttribute("aria-invalid", "true");
  }

  show(text, span) {
    setText(this.problem, text); // said again only if it is another
    this.paint(span);
  }

  /** Where a line and column, counted from 1 in characters, lie in the text. */
  span(line, column) {
    const lines = this.text().split("\n");
    const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const start = before + [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
    const found = WORD.exec(this.text().slice(start));
    return [start, start + (found?.[0].length ?? 0)];
  }

  paint(span) {
    const text = this.text();
    if (span === null) {
      fill(this.copy, text, "\n");
    } else {
      const [start, end] = span;
      // At the end of the text there is nothing to underline but a space.
      fill(
        this.copy,
        text.slice(0, start),
        h("mark", {}, text.slice(start, end) || " "),
        text.slice(end),
        "\n",
      );
    }
    this.align();
  }

  align() {
    this.copy.scrollTop = this.area.scrollTop;
    this.copy.scrollLeft = this.area.scrollLeft;
  }
}
