#include "plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

namespace baton::plan {
namespace {

double gb(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// Of two small whole numbers the pair whose ratio is nearest to `ratio` from above: prefill must not be what decode waits for.
std::pair<int, int> instances(double ratio) {
  std::pair<int, int> best = {static_cast<int>(std::ceil(ratio)), 1};
  for (int decode = 2; decode <= 4; ++decode) {
    const int prefill = static_cast<int>(std::ceil(ratio * decode));
    if (prefill + decode <= 16 && prefill * best.second < best.first * decode) best = {prefill, decode};
  }
  return best;
}

void add_memory(std::string& out, const Machine& m, const Memory& memory) {
  out += fmt::format("\nmemory of one GPU, {:.1f} GB\n", gb(memory.total_bytes));
  for (const Memory::Line& l : memory.fixed) out += fmt::format("  {:<34}{:>10.2f} GB\n", l.name, gb(l.bytes));
  out += fmt::format("  {:<34}{:>10.2f} GB\n", "left for requests", gb(memory.unused_bytes()));
  out += fmt::format("one request takes of {}\n", m.layout == Layout::kTensor ? "every GPU" : "its GPU");
  for (const Memory::Line& l : memory.per_request) out += fmt::format("  {:<34}{:>10.2f} MB\n", l.name, static_cast<double>(l.bytes) / 1e6);
  out += fmt::format("  {:<34}{:>10.2f} MB\n", "together", static_cast<double>(memory.request_bytes) / 1e6);
  out += fmt::format("so {} requests fit on {} GPU{}\n", memory.running, m.gpus, m.gpus == 1 ? "" : "s");
}

void add_work(std::string& out, const char* title, const std::vector<Work>& work, const Gpu& gpu, const Efficiency& e) {
  double floor = 0, expected = 0;
  out += fmt::format("\n{}\n  {:<34}{:>10}{:>10}{:>10}{:>12}{:>12}\n", title, "on one GPU", "TFLOP", "GB", "link GB", "floor ms",
                     "expected ms");
  for (const Work& w : work) {
    const double f = floor_seconds(w, gpu) * 1e3, x = expected_seconds(w, gpu, e) * 1e3;
    floor += f;
    expected += x;
    out += fmt::format("  {:<34}{:>10.3f}{:>10.2f}{:>10.2f}{:>12.2f}{:>12.2f}{}\n", w.part, w.repeats * w.flop / 1e12,
                       w.repeats * w.bytes / 1e9, w.repeats * w.peer_bytes / 1e9, f, x, e.measured.contains(w.op) ? "  measured" : "");
  }
  out += fmt::format("  {:<64}{:>12.2f}{:>12.2f}\n", "together", floor, expected);
}

void add_variant(std::string& out, const Variant& v, const Load& load, const Efficiency& e) {
  const Machine& m = v.machine;
  const DecodePlan& d = v.plan.decode;
  out += fmt::format("\n=== {}: {} x {}, rows in {}, state in {}, drafter {}\n", layout_name(m.layout), m.gpus, m.gpu.name,
                     dtype_name(m.cache.latent), dtype_name(m.cache.state), drafter_name(m.cache.drafter));
  add_memory(out, m, d.memory);
  if (d.point.requests > 0) {
    add_work(out, "a decode cycle", d.work, m.gpu, e);
    out += fmt::format("\ndecode: {:.0f} requests, cycle {:.2f} ms (floor {:.2f}), {:.2f} ms a token, {:.0f} tokens/s, {:.0f} a GPU\n",
                       d.point.requests, d.point.expected_seconds * 1e3, d.point.floor_seconds * 1e3, d.point.tpot_seconds * 1e3,
                       d.point.tokens_per_second, d.point.tokens_per_second / m.gpus);
  }
  out += fmt::format("limit: {}\n", limit_text(d.limit));
  const PrefillPlan& p = v.plan.prefill;
  if (!p.chunk_seconds.empty()) {
    add_work(out, "the middle chunk of a prompt", p.work, m.gpu, e);
    out += fmt::format("\nprefill: {} chunk{}, first token after {:.2f} s at an idle instance, {:.0f} tokens/s\n", p.chunk_seconds.size(),
                       p.chunk_seconds.size() == 1 ? "" : "s", p.ttft_seconds, p.tokens_per_second);
    if (p.requests_per_second > 0)
      out += fmt::format("         at most {:.3f} requests/s for a mean of {:.2f} s to the first token\n", p.requests_per_second,
                         load.ttft_seconds);
    else
      out += fmt::format("         no rate holds a mean of {:.2f} s to the first token: one prompt takes longer\n", load.ttft_seconds);
  }
  if (v.plan.prefill_per_decode > 0) {
    const auto [prefill, decode] = instances(v.plan.prefill_per_decode);
    out += fmt::format("ratio: {:.2f} prefill instances keep one of decode busy ({:.3f} requests/s): {}P{}D\n", v.plan.prefill_per_decode,
                       v.plan.decode_requests_per_second, prefill, decode);
  }
  if (!v.changes.empty()) out += "what would give more decode throughput per GPU\n";
  for (const Change& c : v.changes)
    out += fmt::format("  {:<60}{:>+8.0f} %{:>10.0f} tokens/s\n", c.name, c.per_gpu * 100, c.tokens_per_second);
}

boost::json::array lines_json(const std::vector<Memory::Line>& lines) {
  boost::json::array a;
  for (const Memory::Line& l : lines) a.push_back({{"name", l.name}, {"bytes", l.bytes}});
  return a;
}

boost::json::array work_json(const std::vector<Work>& work, const Gpu& gpu, const Efficiency& e) {
  boost::json::array a;
  for (const Work& w : work)
    a.push_back({{"part", w.part},
                 {"op", w.op},
                 {"flop", w.repeats * w.flop},
                 {"bytes", w.repeats * w.bytes},
                 {"peer_bytes", w.repeats * w.peer_bytes},
                 {"floor_ms", floor_seconds(w, gpu) * 1e3},
                 {"expected_ms", expected_seconds(w, gpu, e) * 1e3},
                 {"measured", e.measured.contains(w.op)}});
  return a;
}

boost::json::object point_json(const DecodePoint& p) {
  return {{"requests", p.requests},
          {"floor_ms", p.floor_seconds * 1e3},
          {"expected_ms", p.expected_seconds * 1e3},
          {"tpot_ms", p.tpot_seconds * 1e3},
          {"tokens_per_second", p.tokens_per_second}};
}

}  // namespace

const char* layout_name(Layout layout) { return layout == Layout::kTensor ? "tp" : "dp-ep"; }

const char* drafter_name(Drafter drafter) {
  switch (drafter) {
    case Drafter::kNone: return "none";
    case Drafter::kMtp: return "mtp";
    case Drafter::kDFlash2: return "dflash";
  }
  return "";
}

std::string text_of(const std::vector<Variant>& variants, const Load& load, const Efficiency& e) {
  const Gpu& gpu = variants.front().machine.gpu;
  std::string out = fmt::format("{}: {:.2f} TB/s, {:.0f} TFLOP/s BF16, {:.0f} FP8, {:.0f} GB/s to a peer\n  {}\n", gpu.name,
                                gpu.read / 1e12, gpu.bf16 / 1e12, gpu.fp8 / 1e12, gpu.peer / 1e9, gpu.source);
  out += fmt::format("expected: {:.0f} % of memory, {:.0f} % of compute, {:.0f} % of links, {:.0f} us a kernel; {} op{} measured\n",
                     e.memory * 100, e.compute * 100, e.peer * 100, e.kernel_seconds * 1e6, e.measured.size(),
                     e.measured.size() == 1 ? "" : "s");
  out += fmt::format("load: prompts of {:.0f} tokens, {:.2f} % of them cached, {:.0f} out; {:.2f} ms a token, {:.2f} s to the first\n",
                     load.prompt_tokens, load.shared * 100, load.output_tokens, load.tpot_seconds * 1e3, load.ttft_seconds);
  for (const Variant& v : variants) add_variant(out, v, load, e);
  return out;
}

boost::json::object json_of(const std::vector<Variant>& variants, const Load& load, const Efficiency& e) {
  boost::json::array layouts;
  for (const Variant& v : variants) {
    const DecodePlan& d = v.plan.decode;
    boost::json::array curve, changes, chunks;
    for (const DecodePoint& p : d.curve) curve.push_back(point_json(p));
    for (const Change& c : v.changes)
      changes.push_back({{"name", c.name}, {"tokens_per_second", c.tokens_per_second}, {"gain_per_gpu", c.per_gpu}});
    for (const double s : v.plan.prefill.chunk_seconds) chunks.push_back(s * 1e3);
    layouts.push_back({{"layout", layout_name(v.machine.layout)},
                       {"gpus", v.machine.gpus},
                       {"memory",
                        {{"total_bytes", d.memory.total_bytes},
                         {"fixed", lines_json(d.memory.fixed)},
                         {"per_request", lines_json(d.memory.per_request)},
                         {"running", d.memory.running}}},
                       {"decode",
                        {{"limit", limit_text(d.limit)},
                         {"point", point_json(d.point)},
                         {"curve", std::move(curve)},
                         {"cycle", work_json(d.work, v.machine.gpu, e)}}},
                       {"prefill",
                        {{"chunks_ms", std::move(chunks)},
                         {"ttft_s", v.plan.prefill.ttft_seconds},
                         {"tokens_per_second", v.plan.prefill.tokens_per_second},
                         {"requests_per_second", v.plan.prefill.requests_per_second},
                         {"chunk", work_json(v.plan.prefill.work, v.machine.gpu, e)}}},
                       {"decode_requests_per_second", v.plan.decode_requests_per_second},
                       {"prefill_per_decode", v.plan.prefill_per_decode},
                       {"changes", std::move(changes)}});
  }
  const Gpu& gpu = variants.front().machine.gpu;
  return {
      {"gpu", {{"name", gpu.name}, {"read", gpu.read}, {"bf16", gpu.bf16}, {"fp8", gpu.fp8}, {"peer", gpu.peer}, {"source", gpu.source}}},
      {"load",
       {{"prompt_tokens", load.prompt_tokens},
        {"output_tokens", load.output_tokens},
        {"shared", load.shared},
        {"concurrency", load.concurrency},
        {"tpot_ms", load.tpot_seconds * 1e3},
        {"ttft_s", load.ttft_seconds}}},
      {"layouts", std::move(layouts)}};
}

std::string plot_of(const std::vector<Variant>& variants) {
  constexpr double kLeft = 70, kTop = 30, kWidth = 560, kHeight = 300, kRight = kLeft + kWidth, kBottom = kTop + kHeight;
  constexpr const char* kColours[] = {"#1f6feb", "#d1602b"};
  double requests = 2, tokens = 1, tpot = 1e-3;
  for (const Variant& v : variants)
    for (const DecodePoint& p : v.plan.decode.curve) {
      requests = std::max(requests, p.requests);
      tokens = std::max(tokens, p.tokens_per_second);
      tpot = std::max(tpot, p.tpot_seconds);
    }
  const auto x_of = [&](double r) { return kLeft + kWidth * std::log2(r) / std::log2(requests); };
  const auto line = [&](const Variant& v, auto value, double most, const char* colour, const char* dash) {
    std::string points;
    for (const DecodePoint& p : v.plan.decode.curve)
      points += fmt::format("{:.1f},{:.1f} ", x_of(p.requests), kBottom - kHeight * value(p) / most);
    return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", points, colour, dash);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 700 400\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"700\" height=\"400\" fill=\"white\"/>\n<text x=\"{}\" y=\"18\">tokens/s (solid) and ms per token (dashed) over "
      "requests of an instance"
      "</text>\n<path d=\"M{} {}V{}H{}V{}\" fill=\"none\" stroke=\"#888\"/>\n",
      kLeft, kLeft, kTop, kBottom, kRight, kTop);
  for (int i = 0; i <= 4; ++i) {
    const double y = kBottom - kHeight * i / 4;
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0f}</text><text x=\"{}\" y=\"{}\">{:.1f}</text>\n", kLeft - 6, y + 4,
                       tokens * i / 4, kRight + 6, y + 4, tpot * 1e3 * i / 4);
  }
  for (double r = 1; r <= requests; r *= 4)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", x_of(r), kBottom + 18, r);
  for (size_t i = 0; i < variants.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    out += line(
        variants[i], [](const DecodePoint& p) { return p.tokens_per_second; }, tokens, colour, "");
    out += line(
        variants[i], [](const DecodePoint& p) { return p.tpot_seconds; }, tpot, colour, " stroke-dasharray=\"5 4\"");
    out += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{} on {} {}</text>\n", kLeft + static_cast<double>(i) * 180, kBottom + 44,
                       colour, layout_name(variants[i].machine.layout), variants[i].machine.gpus, variants[i].machine.gpu.name);
  }
  return out + "</svg>\n";
}

}  // namespace baton::plan
