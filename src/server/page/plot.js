// Two small plots: lines (or a stack of areas) over time, and a distribution. They are SVG, so that the style sheet colours them.
import { el, svg } from "./dom.js";

const WIDTH = 300, HEIGHT = 100;  // of the coordinates; the element has whatever size it has

// The next round number from `value` on: 1, 2 or 5 with zeros.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= value * 0.999);
}

function frame(title) {
  const legend = el("div", { class: "legend" });
  const most = el("span", { class: "most" });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const ends = el("div", { class: "ends" });
  const box = el("div", { class: "frame" }, picture, most);
  const root = el("section", { class: "plot", "aria-label": title }, el("h2", {}, title), legend, box, ends);
  return { root, legend, most, picture, ends };
}

const gridLine = (y) => svg("path", { class: "grid", d: `M0 ${y}H${WIDTH}` });

// The stretches of values that are known, as lists of [index, value].
function stretches(values) {
  const out = [[]];
  values.forEach((value, i) => {
    if (Number.isFinite(value)) out.at(-1).push([i, value]);
    else if (out.at(-1).length > 0) out.push([]);
  });
  return out.filter((s) => s.length > 0);
}

// series: [{name, read(sample) -> number or NaN}]; `format` makes text of a number; `most`: the top of the scale, if it is fixed.
export class TimePlot {
  constructor({ title, series, format, most = null, stacked = false }) {
    Object.assign(this, { series, format, most, stacked, hover: null, samples: [], capacity: 1 });
    this.parts = frame(title);
    this.root = this.parts.root;
    this.values = series.map((s, i) => {
      const value = el("span");
      this.parts.legend.append(el("span", {}, el("i", { class: `fill-${i + 1}` }), s.name, " ", value));
      return value;
    });
    const { picture } = this.parts;
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      this.hover = Math.round(((event.clientX - box.left) / box.width) * (this.capacity - 1));
      this.draw(this.samples, this.capacity);
    });
    picture.addEventListener("pointerleave", () => {
      this.hover = null;
      this.draw(this.samples, this.capacity);
    });
  }

  // The samples end at the right edge; as many as `capacity` fill the width.
  draw(samples, capacity) {
    this.samples = samples;
    this.capacity = capacity;
    const rows = this.series.map((s) => samples.map((sample) => s.read(sample)));
    if (this.stacked) for (let r = 1; r < rows.length; ++r) rows[r] = rows[r].map((v, i) => v + rows[r - 1][i]);
    const known = rows.flat().filter(Number.isFinite);
    const most = this.most ?? roundUp(Math.max(0, ...known));
    const first = capacity - samples.length;
    const x = (i) => (((first + i) / (capacity - 1)) * WIDTH).toFixed(2);
    const y = (v) => (HEIGHT - Math.min(v / most, 1) * HEIGHT).toFixed(2);
    const shapes = [gridLine(0), gridLine(HEIGHT / 2), gridLine(HEIGHT)];
    const order = this.stacked ? rows.map((_, r) => rows.length - 1 - r) : rows.map((_, r) => r);
    for (const r of order) {
      for (const stretch of stretches(rows[r])) {
        const line = stretch.map(([i, v]) => `${x(i)} ${y(v)}`).join("L");
        const [begin, end] = [stretch[0][0], stretch.at(-1)[0]].map(x);
        shapes.push(this.stacked ? svg("path", { class: `area fill-${r + 1}`, d: `M${begin} ${HEIGHT}L${line}L${end} ${HEIGHT}Z` })
                                 : svg("path", { class: `line-${r + 1}`, d: `M${line}` }));
      }
    }
    const shown = this.hover === null ? samples.length - 1 : Math.min(this.hover - first, samples.length - 1);
    if (this.hover !== null && shown >= 0) shapes.push(svg("path", { class: "cursor", d: `M${x(shown)} 0V${HEIGHT}` }));
    this.parts.picture.replaceChildren(...shapes);
    this.parts.most.textContent = this.format(most);
    this.series.forEach((s, i) => {
      const value = shown >= 0 ? s.read(samples[shown]) : NaN;
      this.values[i].textContent = Number.isFinite(value) ? this.format(value) : "–";
    });
    const age = this.hover === null || shown < 0 ? 0 : samples.length - 1 - shown;
    this.parts.ends.replaceChildren(el("span", {}, `${capacity - 1} s ago`), el("span", {}, age === 0 ? "now" : `${age} s ago`));
  }
}

// How values are spread over the buckets of a histogram.
export class SpreadPlot {
  constructor({ title, format }) {
    this.format = format;
    this.parts = frame(title);
    this.root = this.parts.root;
  }

  // buckets: [{edge, count}], the upper edges ascending, the last one Infinity; quantiles: [["p50", value], ...]
  draw(buckets, quantiles) {
    const used = buckets.map((b, i) => (b.count > 0 ? i : -1)).filter((i) => i >= 0);
    const begin = Math.max(0, (used[0] ?? 0) - 1), end = Math.min(buckets.length, (used.at(-1) ?? buckets.length - 1) + 2);
    const shown = buckets.slice(begin, end);
    const most = Math.max(1, ...shown.map((b) => b.count));
    const step = WIDTH / shown.length;
    const bars = shown.map((b, i) => {
      const height = (b.count / most) * HEIGHT;
      const below = begin + i > 0 ? this.format(buckets[begin + i - 1].edge) : "0";
      const range = Number.isFinite(b.edge) ? `${below} to ${this.format(b.edge)}` : `above ${below}`;
      const place = { x: i * step + 1, y: HEIGHT - height, width: Math.max(step - 2, 1), height };
      return svg("rect", { class: "fill-1", ...place }, svg("title", {}, `${range}: ${b.count}`));
    });
    this.parts.picture.replaceChildren(gridLine(HEIGHT), ...bars);
    this.parts.most.textContent = used.length > 0 ? `${most}` : "nothing yet";
    const named = quantiles.map(([name, v]) => el("span", {}, `${name} ${Number.isFinite(v) ? this.format(v) : "–"}`));
    this.parts.legend.replaceChildren(...named);
    const last = shown.at(-1)?.edge ?? Infinity;
    this.parts.ends.replaceChildren(el("span", {}, begin > 0 ? this.format(buckets[begin - 1].edge) : "0"),
      el("span", {}, Number.isFinite(last) ? this.format(last) : `above ${this.format(buckets.at(-2)?.edge ?? 0)}`));
  }
}
