// What the server does, from its metrics, once a second while somebody looks at the page.
import * as api from "./api.js";
import { byId, el } from "./dom.js";
import { SpreadPlot, TimePlot } from "./plot.js";

const EVERY_MS = 1000;
const KEPT = 301;     // samples: five minutes
const WINDOW = 60;    // samples that rates of hits and distributions look back

const samples = [];  // {at, values: Map, before: the sample before it or null, past: the one a window ago}
const plots = [];
let tiles = [];

const get = (sample, name) => sample.values.get(name) ?? 0;
const growth = (sample, from, name) => (from ? Math.max(0, get(sample, name) - get(from, name)) : NaN);

// Per second since the sample before.
const rate = (name) => (s) => (s.before ? (growth(s, s.before, name) * 1000) / (s.at - s.before.at) : NaN);
const gauge = (name) => (s) => get(s, name);
const share = (part, whole) => (s) => {
  const all = growth(s, s.past, whole);
  return all > 0 ? growth(s, s.past, part) / all : NaN;
};

// [{edge, count}] of what a histogram has gathered within the window.
function spread(sample, name) {
  const out = [];
  let below = 0;
  const prefix = `${name}_bucket{le="`;
  for (const key of sample.values.keys()) {
    if (!key.startsWith(prefix)) continue;
    const edge = key.slice(prefix.length, -2);
    const until = growth(sample, sample.past, key) || 0;
    out.push({ edge: edge === "+Inf" ? Infinity : Number(edge), count: Math.max(0, until - below) });
    below = until;
  }
  return out;
}

// Within a bucket values are taken to be spread evenly; behind the last edge nothing is known.
function quantile(buckets, q) {
  const total = buckets.reduce((sum, b) => sum + b.count, 0);
  let below = 0, edge = 0;
  for (const b of buckets) {
    if (total > 0 && below + b.count >= q * total)
      return Number.isFinite(b.edge) ? edge + ((q * total - below) / b.count) * (b.edge - edge) : edge;
    below += b.count;
    edge = b.edge;
  }
  return NaN;
}

const count = (v) => {
  if (v >= 1e6) return `${(v / 1e6).toFixed(1)} M`;
  if (v >= 1e4) return `${(v / 1e3).toFixed(1)} k`;
  return v.toFixed(v >= 100 || Number.isInteger(v) ? 0 : 1);
};
const percent = (v) => `${(v * 100).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %`;
const time = (v) => {
  if (v < 0.001) return `${(v * 1e6).toFixed(0)} µs`;
  return v < 1 ? `${(v * 1e3).toFixed(v < 0.01 ? 1 : 0)} ms` : `${v.toFixed(v < 10 ? 1 : 0)} s`;
};

const FIRST = "baton_time_to_first_token_seconds", BETWEEN = "baton_inter_token_latency_seconds", QUEUE = "baton_queue_seconds";
const written = rate("baton_engine_tokens_total");
const running = gauge("baton_sequences_running"), waiting = gauge("baton_sequences_waiting");
const hits = share("baton_prefix_cache_hits_total", "baton_prefix_cache_queries_total");
const pages = (state) => gauge(`baton_pages{state="${state}"}`);
const accepted = share("baton_spec_accepted_tokens_total", "baton_spec_blocks_total");  // drafts; the block's own token comes on top

const TILES = [
  ["tokens/s written", written, count],
  ["running", running, count],
  ["waiting", waiting, count],
  ["first token, p50", (s) => quantile(spread(s, FIRST), 0.5), time],
  ["per token, p50", (s) => quantile(spread(s, BETWEEN), 0.5), time],
  ["cache hits", hits, percent],
];

// The plots show a minute at first, and more when there is more.
const width = () => Math.max(WINDOW + 1, samples.length);

function makePlots() {
  const lines = (options) => {
    const plot = new TimePlot(options);
    plots.push({ root: plot.root, draw: () => plot.draw(samples, width()), present: options.present });
  };
  const distribution = (title, name) => {
    const plot = new SpreadPlot({ title, format: time });
    const draw = () => {
      const buckets = spread(samples.at(-1), name);
      plot.draw(buckets, [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]].map(([label, q]) => [label, quantile(buckets, q)]));
    };
    plots.push({ root: plot.root, draw, present: (s) => s.values.has(`${name}_count`) });
  };
  lines({ title: "Tokens per second", format: count, series: [
    { name: "written", read: written }, { name: "of prompts, computed", read: rate("baton_prefill_rows_total") }] });
  lines({ title: "Requests", format: count, series: [{ name: "running", read: running }, { name: "waiting", read: waiting }] });
  distribution("Time to the first token, last minute", FIRST);
  distribution("Time between tokens, last minute", BETWEEN);
  distribution("Time in the queue, last minute", QUEUE);
  lines({ title: "Prompt cache, last minute", format: percent, most: 1, series: [{ name: "of all tokens found", read: hits }] });
  const allPages = (s) => pages("free")(s) + pages("held")(s) + pages("cached")(s);
  lines({ title: "Pages of 64 tokens", format: percent, most: 1, stacked: true, series: [
    { name: "held", read: (s) => pages("held")(s) / allPages(s) }, { name: "cached", read: (s) => pages("cached")(s) / allPages(s) }] });
  const slot = (state) => gauge(`baton_slots{state="${state}"}`);
  lines({ title: "Slots of running requests", format: count, series: [
    { name: "held", read: slot("held") }, { name: "there are", read: (s) => slot("held")(s) + slot("free")(s) }] });
  const drafts = (s) => get(s, "baton_spec_draft_tokens_total") > 0;
  const length = { name: "drafts accepted, and one", read: (s) => 1 + accepted(s) };
  lines({ title: "Tokens per verified block, last minute", format: count, series: [length], present: drafts });
}

export function draw() {
  const last = samples.at(-1);
  if (!last || byId("metrics").hidden) return;
  TILES.forEach(([, read, format], i) => {
    const value = read(last);
    tiles[i].textContent = Number.isFinite(value) ? format(value) : "–";
  });
  for (const plot of plots) {
    plot.root.hidden = plot.present ? !plot.present(last) : false;
    if (!plot.root.hidden) plot.draw();
  }
}

async function look(tell) {
  try {
    const values = await api.metrics();
    const before = samples.at(-1) ?? null;
    const sample = { at: performance.now(), values, before, past: samples.at(-WINDOW) ?? samples[0] ?? null };
    samples.push(sample);
    if (samples.length > KEPT) {
      samples.shift();
      samples[0].before = samples[0].past = null;  // else none would ever be forgotten
    }
    tell(true, `${running(sample)} running, ${waiting(sample)} waiting`);
  } catch {
    tell(false, "the server does not answer");
  }
  draw();
}

export function start(tell) {
  tiles = TILES.map(([name]) => {
    const value = el("b", {}, "–");
    byId("tiles").append(el("div", { class: "tile" }, value, el("span", { class: "muted small" }, name)));
    return value;
  });
  makePlots();
  byId("plots").append(...plots.map((p) => p.root));
  const tick = async () => {
    if (!document.hidden) await look(tell);
    setTimeout(tick, EVERY_MS);
  };
  tick();
}
