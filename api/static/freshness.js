// Which parts of a page are not renewed, since when and why: said above them.

import { h, renew } from "/static/dom.js";
import { clock } from "/static/format.js";

const SETTLE_MS = 300; // parts fail within a moment of each other: it is said once

export class Freshness {
  constructor() {
    this.element = h("div", { class: "stale", role: "status" });
    this.parts = new Map(); // name -> {seen, problem}: when it was renewed last, why not since
  }

  /** For `repeat` and `follow`: what hears how it goes with that part of the page. */
  of(name) {
    const part = { seen: null, problem: null };
    this.parts.set(name, part);
    return (error) => {
      const problem = error?.message ?? null;
      if (problem === null) part.seen = Date.now();
      if (problem === part.problem) return;
      part.problem = problem;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.draw(), SETTLE_MS);
    };
  }

  draw() {
    const sentences = [];
    for (const known of [true, false])
      for (const [problem, parts] of this.failing(known)) {
        const names = parts.map(([name]) => name).join(", ");
        const since = Math.min(...parts.map(([, part]) => part.seen));
        const what = known ? `Not updated since ${clock(since)} UTC` : "Not loaded yet";
        sentences.push(h("p", {}, `${what}: ${names}. ${capital(problem)}`));
      }
    renew(this.element, sentences);
  }

  /** The parts that fail, by their problem; `known`: those that were there before. */
  failing(known) {
    const found = new Map();
    for (const entry of this.parts) {
      const { seen, problem } = entry[1];
      if (problem === null || (seen !== null) !== known) continue;
      found.set(problem, [...(found.get(problem) ?? []), entry]);
    }
    return found;
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
