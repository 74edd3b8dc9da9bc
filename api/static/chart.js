// Line charts over time on uPlot. The newest value stands beside the title as text, so that a chart
// says something without being seen; the value under the pointer takes its place.

import uPlot from "/static/vendor/uplot/uPlot.esm.js";
import { h, setText } from "/static/dom.js";
import { hour, short } from "/static/format.js";

const HEIGHT = 150;
const COLOURS = 6; // --line-1 ... --line-6 in style.css

const utc = (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A chart with one line a label; `format` writes values. `draw(times, lines)` shows epoch
 * milliseconds and one list of values (or null) a line; `labels` may be others than before.
 */
export class Chart {
  constructor(title, { format = short, labels = [title], height = HEIGHT } = {}) {
    this.format = format;
    this.labels = labels;
    this.height = height;
    this.title = title;
    this.now = h("span", { class: "now" }); // no live region: it changes every 2 s
    this.place = h("div", { class: "plot", role: "img", "aria-label": title });
    this.legend = h("ul", { class: "legend" });
    this.element = h(
      "figure",
      { class: "chart" },
      h("figcaption", {}, h("span", {}, title), " ", this.now),
      this.place,
      this.legend,
    );
    this.data = [[], ...labels.map(() => [])];
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.restyle = () => this.rebuild();
    this.dark.addEventListener("change", this.restyle);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.place);
  }

  draw(times, lines, labels = this.labels) {
    const other =
      labels.length !== this.labels.length || labels.some((label, at) => label !== this.labels[at]);
    this.labels = labels;
    this.data = [times.map((ms) => ms / 1_000), ...lines];
    if (other || !this.plot) this.rebuild();
    else this.plot.setData(this.data);
    this.tell(times.length - 1);
  }

  /** What stands beside the heights: each text once, and nothing beside no line. */
  heights(plot, ticks) {
    const empty = plot.data.slice(1).every((line) => line.every((value) => value == null));
    const texts = ticks.map((tick) => this.format(tick));
    return texts.map((text, at) => (empty || text === texts[at - 1] ? "" : text));
  }

  tell(at) {
    if (this.labels.length !== 1 || at < 0) return;
    const text = this.format(this.data[1][at]);
    setText(this.now, text);
    this.place.setAttribute("aria-label", `${this.title}: ${text}`);
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    const width = this.place.clientWidth;
    if (!width || !this.data[0].length) return;
    this.plot = new uPlot(this.options(width), this.data, this.place);
    if (!performance.getEntriesByName("first chart").length) performance.mark("first chart");
    const many = this.labels.length > 1 || this.labels[0] !== this.title;
    this.legend.replaceChildren(
      ...(many
        ? this.labels.map((label, at) =>
            h("li", {}, h("i", { class: `swatch line-${(at % COLOURS) + 1}` }), label),
          )
        : []),
    );
  }

  options(width) {
    const axis = {
      stroke: style("--quiet"),
      grid: { stroke: style("--rule"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui",
    };
    return {
      width,
      height: this.height,
      tzDate: utc,
      padding: [10, 28, 0, 0], // the last time must fit
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: {
          range: (plot, low, high) =>
            plot.data[0].length > 1 ? [low, high] : [low - 60, low + 60],
        },
        y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] },
      },
      axes: [
        {
          ...axis,
          size: 28,
          space: 70,
          values: (_plot, ticks) => ticks.map((tick) => hour(tick * 1_000)),
        },
        {
          ...axis,
          size: 62,
          space: 36,
          values: (plot, ticks) => this.heights(plot, ticks),
        },
      ],
      series: [
        {},
        ...this.labels.map((label, at) => ({
          label,
          stroke: style(`--line-${(at % COLOURS) + 1}`),
          width: 2,
          spanGaps: true,
          points: { show: (plot) => plot.data[0].length < 3 },
        })),
      ],
      hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx ?? this.data[0].length - 1)] },
    };
  }

  resize() {
    const width = this.place.clientWidth;
    if (!this.plot) this.rebuild();
    else if (width && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  destroy() {
    this.dark.removeEventListener("change", this.restyle);
    this.sizes.disconnect();
    this.plot?.destroy();
  }
}

const POINTS_KEPT = 300; // 10 minutes, as the API takes a point every 2 s

/** Points as they come, the newest last, no more than are shown. */
export class Ring {
  constructor() {
    this.points = [];
  }

  /** Take the points of an event: those so far, or one more. */
  add(points) {
    const last = this.points.at(-1)?.at ?? -Infinity;
    this.points.push(...points.filter((point) => point.at > last));
    if (this.points.length > POINTS_KEPT) this.points.splice(0, this.points.length - POINTS_KEPT);
  }

  times() {
    return this.points.map((point) => point.at);
  }

  line(name) {
    return this.points.map((point) => point[name]);
  }
}
