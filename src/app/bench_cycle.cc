// baton bench cycle, baton bench prefill: what a decode cycle or a prefill chunk takes on a device, whole and op by op.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "app/commands.h"
#include "app/inspect_drafter.h"
#include "app/model_flags.h"
#include "app/validators.h"
#include "base/file.h"
#include "meter/clock_timeline.h"
#include "meter/metered_backend.h"
#include "meter/synthetic_cycle.h"
#include "model/random_checkpoint.h"
#include "ops/cpu/backend.h"
#include "ops/cuda/open.h"
#include "plan/gpu.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOps = size_t{1} << 15;  // of a cycle: 46 layers take about 1,000
constexpr int kLeastRounds = 3;

struct Arguments {
  ModelFlags flags;
  std::string model, config;
  std::string format = "fp8";
  std::vector<int32_t> requests = {8};
  std::vector<int64_t> contexts = {1024};
  int32_t rows = 1;      // of a request in a cycle; tokens of a chunk
  int32_t accepted = 0;  // 0: all rows
  double seconds = 2;
  int32_t op_rounds = 3;
  std::string gpu;
  std::string json_file;
  bool prefill = false;
  bool graph = false;
};

struct Point {
  meter::CycleShape shape;
  double median = 0, least = 0, most = 0;  // seconds of a whole cycle
  size_t rounds = 0;
  std::vector<meter::OpRow> ops{};
  double timed = 0;    // seconds of a cycle with every op timed
  double between = 0;  // of which none ran
  int64_t cache_bytes = 0;
};

Result<model::Checkpoint> checkpoint_of(const Arguments& a, int threads) {
  if (!a.model.empty()) return model::Checkpoint::open(a.model);
  BATON_ASSIGN(const std::string config, read_file(a.config, int64_t{8} << 20));
  const auto format = a.format == "fp8"    ? model::WeightFormat::kFp8
                      : a.format == "bf16" ? model::WeightFormat::kBF16
                                           : model::WeightFormat::kF32;
  return model::random_checkpoint(config, a.config, format, 1, threads);
}

std::vector<meter::CycleShape> shapes_of(const Arguments& a) {
  std::vector<meter::CycleShape> shapes;
  for (const int64_t context : a.contexts)
    for (const int32_t requests : a.requests)
      shapes.push_back({.sequences = requests,
                        .rows = a.rows,
                        .context = context,
                        .verify = !a.prefill && a.rows > 1,
                        .accepted = a.prefill || a.rows == 1 ? 0
                                    : a.accepted > 0         ? a.accepted
                                                             : a.rows});
  return shapes;
}

// `device`: what the metered backend stands before.
Result<Point> measure(model::Glm5Next& model, meter::MeteredBackend& backend, ops::Backend& device, const meter::CycleShape& shape,
                      const Arguments& a) {
  Point p{.shape = shape};
  BATON_ASSIGN(const auto cycle, meter::SyntheticCycle::create(model, backend, shape));
  p.cache_bytes = cycle->page_bytes() + cycle->slot_bytes();
  std::unique_ptr<ops::Recording> graph;
  const auto whole = [&] {
    const Clock::time_point begin = Clock::now();
    if (graph)
      graph->replay();
    else
      cycle->run();
    backend.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  whole();  // warm
  if (a.graph) {
    BATON_ASSIGN(graph, cuda::record(device, [&] { cycle->run(); }));
    whole();
  }
  std::vector<double> times;
  for (double sum = 0; sum < a.seconds || times.size() < kLeastRounds; sum += times.back()) times.push_back(whole());
  std::sort(times.begin(), times.end());
  p.rounds = times.size();
  p.median = times[times.size() / 2];
  p.least = times.front();
  p.most = times.back();
  if (a.op_rounds == 0) return p;
  backend.start_counting();
  cycle->run();
  backend.finish();
  for (int32_t r = 0; r < a.op_rounds; ++r) {
    backend.start_timing();
    cycle->run();
    backend.finish();
  }
  p.ops = backend.rows();
  p.timed = backend.seconds();
  p.between = backend.seconds_between();
  return p;
}

// The least that the op takes at the ceilings of a kind of GPU.
double floor_of(const meter::OpRow& r, const plan::Gpu& gpu) {
  const double peak = r.arithmetic == meter::Arithmetic::kFp8 ? gpu.fp8 : r.arithmetic == meter::Arithmetic::kBf16 ? gpu.bf16 : 0;
  return std::max(r.bytes / gpu.read, peak > 0 ? r.flop / peak : 0);
}

void print(const Point& p, const plan::Gpu* gpu, const Arguments& a) {
  const double tokens = a.prefill ? p.shape.rows : static_cast<double>(p.shape.sequences) * std::max(p.shape.accepted, 1);
  fmt::print("\n{} request{} x {} row{} behind {} tokens: {:.3f} ms (median of {}, {:.3f} to {:.3f}), {:.0f} tok/s; caches {}\n",
             p.shape.sequences, p.shape.sequences == 1 ? "" : "s", p.shape.rows, p.shape.rows == 1 ? "" : "s", p.shape.context,
             p.median * 1e3, p.rounds, p.least * 1e3, p.most * 1e3, tokens / p.median, readable_bytes(p.cache_bytes));
  if (p.ops.empty()) return;
  std::vector<meter::OpRow> rows = p.ops;
  std::stable_sort(rows.begin(), rows.end(), [](const meter::OpRow& x, const meter::OpRow& y) { return x.seconds > y.seconds; });
  fmt::print("{:<15} {:<44} {:>5} {:>10} {:>6} {:>9} {:>8} {:>10} {:>6}\n", "op", "shape", "calls", "us", "share", "GB/s", "TFLOP/s",
             "floor us", "of it");
  double floor = 0;
  for (const meter::OpRow& r : rows) {
    const double least = gpu != nullptr ? floor_of(r, *gpu) : 0;
    floor += least;
    fmt::print("{:<15} {:<44} {:>5} {:>10.1f} {:>5.1f}% {:>9.1f} {:>8.2f} {:>10} {:>6}\n", r.op, r.shape, r.calls, r.seconds * 1e6,
               100 * r.seconds / p.timed, r.bytes / r.seconds * 1e-9, r.flop / r.seconds * 1e-12,
               gpu != nullptr ? fmt::format("{:.1f}", least * 1e6) : "-",
               gpu != nullptr ? fmt::format("{:.0f}%", 100 * least / r.seconds) : "-");
  }
  fmt::print("{:<15} {:<44} {:>5} {:>10.1f} {:>5.1f}%\n", "between ops", "", "", p.between * 1e6, 100 * p.between / p.timed);
  fmt::print("all ops timed: {:.3f} ms; the cycle as a whole {:.3f} ms{}\n", p.timed * 1e3, p.median * 1e3,
             gpu != nullptr
                 ? fmt::format(", the floor of its ops on {} {:.3f} ms ({:.0f} %)", gpu->name, floor * 1e3, 100 * floor / p.median)
                 : std::string());
}

boost::json::object to_json(const Point& p, const plan::Gpu* gpu) {
  boost::json::array ops;
  for (const meter::OpRow& r : p.ops) {
    boost::json::object o = {{"op", r.op},       {"shape", r.shape}, {"calls", r.calls}, {"us", r.seconds * 1e6},
                             {"bytes", r.bytes}, {"flop", r.flop}};
    if (gpu != nullptr) o["floor_us"] = floor_of(r, *gpu) * 1e6;
    ops.emplace_back(std::move(o));
  }
  return {{"requests", p.shape.sequences}, {"rows", p.shape.rows},          {"context", p.shape.context},   {"accepted", p.shape.accepted},
          {"cycle_ms", p.median * 1e3},    {"least_ms", p.least * 1e3},     {"most_ms", p.most * 1e3},      {"rounds", p.rounds},
          {"timed_ms", p.timed * 1e3},     {"between_ms", p.between * 1e3}, {"cache_bytes", p.cache_bytes}, {"ops", std::move(ops)}};
}

Status bench(const Arguments& a) {
  if (a.accepted > a.rows)
    return Error{Error::Kind::kInvalid, fmt::format("--accepted {} exceeds the {} --rows of a request", a.accepted, a.rows)};
  if (a.graph && a.flags.device != "cuda") return Error{Error::Kind::kInvalid, "--graph is for --device cuda; leave it out"};
  std::optional<PendingFile> json;  // now, so that a path that cannot be written is found before the work
  if (!a.json_file.empty()) {
    BATON_ASSIGN(PendingFile file, PendingFile::create(a.json_file));
    json.emplace(std::move(file));
  }
  const int threads = a.flags.threads > 0 ? a.flags.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::string gpu_name = a.gpu.empty() && a.flags.device == "cuda" ? "h200" : a.gpu;
  const plan::Gpu* gpu = gpu_name.empty() ? nullptr : plan::find_gpu(gpu_name);
  const Clock::time_point begin = Clock::now();
  std::unique_ptr<ops::Backend> device;
  std::string device_name = "this machine's processor";
  if (a.flags.device == "cuda") {  // before weights are made that it will not take
    BATON_ASSIGN(cuda::OpenedDevice opened, cuda::open_device({.unproven = a.flags.unproven_kernels}));
    device = std::move(opened.backend);
    device_name = opened.name;
  }
  BATON_ASSIGN(const model::Checkpoint checkpoint, checkpoint_of(a, threads));
  BATON_ASSIGN(engine::LocalOptions options, a.flags.local_options(checkpoint));
  if (!device) device = std::make_unique<cpu::CpuBackend>(options.backend);

  std::unique_ptr<ops::Timeline> timeline;
  if (options.device == engine::Device::kCuda)
    timeline = cuda::make_timeline(*device, 2 * kMostOps);
  else
    timeline = std::make_unique<meter::ClockTimeline>(2 * kMostOps);
  meter::MeteredBackend backend(*device, std::move(timeline), kMostOps);

  const std::vector<meter::CycleShape> shapes = shapes_of(a);
  model::ModelOptions most;
  for (const meter::CycleShape& s : shapes) {
    if (s.context + s.rows > checkpoint.config().max_position_embeddings)
      return Error{Error::Kind::kInvalid, fmt::format("{} tokens of context and {} rows exceed the model's {} positions", s.context, s.rows,
                                                      checkpoint.config().max_position_embeddings)};
    model::ModelOptions m;
    m.numerics = options.numerics;
    m.cache = options.cache;
    m = meter::SyntheticCycle::allow(m, s);
    m.max_rows = std::max(m.max_rows, most.max_rows);
    m.max_logits_rows = std::max(m.max_logits_rows, most.max_logits_rows);
    m.max_sequences = std::max(m.max_sequences, most.max_sequences);
    m.max_pages = std::max(m.max_pages, most.max_pages);
    most = m;
  }
  most.loading.threads = threads;
  BATON_ASSIGN(const auto model, model::Glm5Next::load(checkpoint, backend, most));
  backend.synchronize();
  const double load_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string title =
      fmt::format("{}, {}: one device, no communication{}{}", a.prefill ? "prefill chunk" : "decode cycle",
                  a.model.empty() ? fmt::format("random weights of {} ({})", a.config, a.format) : a.model,
                  a.prefill || a.rows == 1 ? "" : ", no drafting, forced acceptance", a.graph ? ", from a graph" : "");
  fmt::print("{}\non {}; weights {}, workspace {}, ready in {:.1f} s\n", title, device_name, readable_bytes(model->weight_bytes()),
             readable_bytes(model->workspace_bytes()), load_s);

  boost::json::array points;
  for (const meter::CycleShape& s : shapes) {
    BATON_ASSIGN(const Point p, measure(*model, backend, *device, s, a));
    print(p, gpu, a);
    std::fflush(stdout);
    points.emplace_back(to_json(p, gpu));
  }
  if (!json) return {};
  const boost::json::object root = {{"kind", a.prefill ? "prefill" : "decode"},
                                    {"title", title},
                                    {"device", device_name},
                                    {"weight_bytes", model->weight_bytes()},
                                    {"workspace_bytes", model->workspace_bytes()},
                                    {"load_s", load_s},
                                    {"points", std::move(points)}};
  BATON_TRY(json->write(boost::json::serialize(root) + "\n"));
  return json->commit();
}

void add(CLI::App& group, int& exit_code, bool prefill) {
  auto a = std::make_shared<Arguments>();
  a->prefill = prefill;
  CLI::App* c = prefill ? group.add_subcommand("prefill", "What a chunk of a prompt takes on a device, whole and op by op")
                        : group.add_subcommand("cycle", "What a decode cycle takes on a device, whole and op by op");
  CLI::Option_group* source = c->add_option_group("model");
  source->add_option("--model", a->model, "Checkpoint folder");
  source->add_option("--config", a->config, "config.json of a model that gets random weights, made in memory");
  source->require_option(1);
  c->add_option("--format", a->format, "Of random weights: fp8 (128 x 128 blocks as released), bf16, f32")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp8", "bf16", "f32"}));
  if (prefill) {
    a->requests = {1};
    a->rows = 512;
    a->contexts = {0};
    c->add_option("--chunk", a->rows, "Tokens of the chunk")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  } else {
    c->add_option("--requests", a->requests, "Requests that decode at once, several separated by commas")
        ->delimiter(',')
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 14));
    c->add_option("--rows", a->rows, "Rows of a request and cycle: its newest token and its drafts")
        ->capture_default_str()
        ->check(CLI::Range(1, 64));
    c->add_option("--accepted", a->accepted, "Rows that count, of each request and cycle (default: all)")->check(CLI::Range(1, 64));
  }
  c->add_option("--context", a->contexts, "Tokens before the rows, several separated by commas")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  c->add_option("--seconds", a->seconds, "How long whole cycles are repeated")
      ->capture_default_str()
      ->check(between(0, 3600, "0 to 3600 seconds"));
  c->add_option("--op-rounds", a->op_rounds, "Cycles of which each op is timed; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  c->add_flag("--graph", a->graph, "With --device cuda: whole cycles are recorded once and replayed; ops are timed one by one as before");
  std::vector<std::string> names;
  for (const plan::Gpu& g : plan::known_gpus()) names.emplace_back(g.name);
  c->add_option("--gpu", a->gpu, "Whose ceilings the floors are of (default on a CUDA device: h200)")->check(CLI::IsMember(names));
  c->add_option("--json", a->json_file, "Also write the figures to this file");
  a->flags.add_numerics_to(*c);
  c->callback([a, &exit_code] { exit_code = finish(bench(*a)); });
}

}  // namespace

void add_bench_cycle(CLI::App& group, int& exit_code) { add(group, exit_code, false); }
void add_bench_prefill(CLI::App& group, int& exit_code) { add(group, exit_code, true); }

}  // namespace baton::app
