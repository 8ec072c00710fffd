// baton bench engine: what the engine gives by batch and by shared prefix, and what the host spends on a cycle.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>

#include "app/commands.h"
#include "app/console.h"
#include "app/model_flags.h"
#include "app/validators.h"
#include "base/file.h"
#include "engine/engine.h"
#include "engine/instant_executor.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  ModelFlags flags;
  std::string model;
  std::vector<int32_t> batches = {1, 4, 16, 32};
  std::vector<double> shares = {0, 0.5, 0.9};
  int64_t prompt = 256;
  int64_t generate = 128;
  int32_t rounds = 3;
  int32_t host_requests = 512;
  bool host_only = false;
  std::string json_file;
};

double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Point {
  int32_t batch;
  double share;
  double decode = 0;  // tokens generated per second while all decode
  double total = 0;   // tokens generated per second, of the whole round
  double first = 0;   // seconds to the first token, mean of the requests
  double cached = 0;  // part of the prompt tokens that was found
};

// Requests of one round: `share` of each prompt is common to all, the rest its own. A round before it has left the common part behind.
std::vector<sched::RequestSpec> round_of(const Arguments& a, int32_t batch, double share, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::mt19937_64 common(7);
  const auto shared = static_cast<int64_t>(share * static_cast<double>(a.prompt));
  std::vector<int32_t> stem(static_cast<size_t>(shared));
  for (int32_t& t : stem) t = static_cast<int32_t>(common() % static_cast<uint64_t>(vocabulary));
  std::vector<sched::RequestSpec> specs(static_cast<size_t>(batch));
  for (sched::RequestSpec& s : specs) {
    s.prompt = stem;
    while (static_cast<int64_t>(s.prompt.size()) < a.prompt)
      s.prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
    s.max_tokens = a.generate;
  }
  return specs;
}

// When each token came.
class TimedSink final : public engine::Sink {
 public:
  explicit TimedSink(int64_t tokens) { times_.reserve(static_cast<size_t>(tokens)); }
  void on_event(const sched::Event& event, float, std::span<const ops::TokenLogprob>) override {
    if (event.token >= 0) times_.push_back(Clock::now());
    usage_ = event.usage;
    if (event.last) end_.release();
  }
  void on_refused(const Error&) override { end_.release(); }

  void wait() { end_.acquire(); }
  // After wait().
  const std::vector<Clock::time_point>& times() const { return times_; }
  const sched::Usage& usage() const { return usage_; }

 private:
  std::vector<Clock::time_point> times_;
  sched::Usage usage_;
  std::binary_semaphore end_{0};
};

Result<Point> measure(engine::Engine& engine, const std::vector<sched::RequestSpec>& specs, int32_t batch, double share) {
  std::vector<std::unique_ptr<TimedSink>> sinks;
  const Clock::time_point start = Clock::now();
  for (const sched::RequestSpec& s : specs) {
    sinks.push_back(std::make_unique<TimedSink>(s.max_tokens));
    if (const auto id = engine.submit(s, *sinks.back()); !id.ok()) {
      engine.wait_idle();  // the sinks of the others are in use until then
      return id.error();
    }
  }
  for (const auto& sink : sinks) sink->wait();
  Point p{batch, share};
  Clock::time_point all_decode = start;
  Clock::time_point first_end = Clock::time_point::max();
  Clock::time_point end = start;
  int64_t generated = 0, cached = 0, prompts = 0;
  for (const auto& sink : sinks) {
    if (sink->times().empty()) return Error{Error::Kind::kExhausted, "a request of the benchmark was refused"};
    p.first += seconds_between(start, sink->times().front()) / batch;
    all_decode = std::max(all_decode, sink->times().front());
    first_end = std::min(first_end, sink->times().back());
    end = std::max(end, sink->times().back());
    generated += sink->usage().generated_tokens;
    cached += sink->usage().cached_tokens;
    prompts += sink->usage().prompt_tokens;
  }
  int64_t together = 0;
  for (const auto& sink : sinks)
    together +=
        std::count_if(sink->times().begin(), sink->times().end(), [&](Clock::time_point t) { return t > all_decode && t <= first_end; });
  constexpr int64_t kLeast = 8;
  if (together < kLeast * batch)
    return Error{Error::Kind::kInvalid, fmt::format("{} requests hardly ever decode all at once; raise --max-tokens", batch)};
  p.decode = static_cast<double>(together) / seconds_between(all_decode, first_end);
  p.total = static_cast<double>(generated) / seconds_between(start, end);
  p.cached = static_cast<double>(cached) / static_cast<double>(prompts);
  return p;
}

Result<std::vector<Point>> measure_model(const Arguments& a) {
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(a.model));
  BATON_ASSIGN(engine::LocalOptions options, a.flags.local_options(checkpoint));
  options.running = *std::max_element(a.batches.begin(), a.batches.end());
  options.max_waiting = options.running;
  options.context_flag = "--prompt-tokens plus --max-tokens";
  options.running_flag = "--batch";
  options.context_tokens = a.prompt + a.generate;
  options.snapshot_tokens = 64;
  BATON_ASSIGN(const auto local, engine::LocalEngine::open(checkpoint, options));
  const int64_t vocabulary = checkpoint.config().vocab_size;
  std::vector<Point> points;
  uint64_t seed = 1;
  for (const double share : a.shares)
    for (const int32_t batch : a.batches) {
      local->engine().flush_cache();
      BATON_TRY(measure(local->engine(), round_of(a, batch, share, vocabulary, ++seed), batch, share));  // warm, and fills the cache
      if (share == 0) local->engine().flush_cache();
      std::vector<double> decode, total, first, cached;
      for (int32_t r = 0; r < a.rounds; ++r) {
        BATON_ASSIGN(const Point p, measure(local->engine(), round_of(a, batch, share, vocabulary, ++seed), batch, share));
        decode.push_back(p.decode);
        total.push_back(p.total);
        first.push_back(p.first);
        cached.push_back(p.cached);
      }
      points.push_back({batch, share, median(decode), median(total), median(first), median(cached)});
    }
  return points;
}

// Counts the requests that have ended. Whoever waits looks from time to time: being woken is the listener's part, and would be measured as
// the engine's.
class CountingSink final : public engine::Sink {
 public:
  void on_event(const sched::Event& event, float, std::span<const ops::TokenLogprob>) override {
    if (event.last) ended_.fetch_add(1, std::memory_order_release);
  }
  void on_refused(const Error&) override { ended_.fetch_add(1, std::memory_order_release); }
  int64_t ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  std::atomic<int64_t> ended_{0};
};

// Requests come and go at a device that takes no time: reading mail, planning, completing, caching and telling are all that is left. As
// many as run wait behind them, and for each that ends another one is submitted.
Result<engine::EngineMetrics> measure_host(int32_t running) {
  constexpr int64_t kVocabulary = 154'880;
  constexpr int64_t kPrompt = 2000;
  constexpr int64_t kGenerate = 400;
  engine::EngineOptions o;
  o.scheduler.context_tokens = 65'536;
  o.scheduler.memory = {
      .pages = static_cast<int32_t>(running * ((kPrompt + kGenerate) / 64 + 8) + 1024), .slots = running, .snapshots = 64};
  o.scheduler.vocabulary = kVocabulary;
  o.scheduler.prefill_tokens = 8192;
  o.scheduler.max_waiting = 1 << 20;
  o.max_mail = 1 << 20;
  CountingSink sink;  // outlives the engine
  std::mt19937_64 random(3);
  std::vector<int32_t> stem(kPrompt / 2);
  for (int32_t& t : stem) t = static_cast<int32_t>(random() % kVocabulary);
  std::vector<sched::RequestSpec> specs(static_cast<size_t>(running) * 16);
  for (sched::RequestSpec& s : specs) {
    s.prompt = stem;
    while (static_cast<int64_t>(s.prompt.size()) < kPrompt) s.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
    // Lengths differ, so that ends and admissions spread over the cycles.
    s.max_tokens = kGenerate / 2 + static_cast<int64_t>(random() % (kGenerate / 2));
  }
  BATON_ASSIGN(const auto engine, engine::Engine::create(std::make_unique<engine::InstantExecutor>(kVocabulary), o));
  size_t submitted = 0;
  while (sink.ended() < std::ssize(specs)) {
    for (; submitted < specs.size() && static_cast<int64_t>(submitted) < sink.ended() + 2 * running; ++submitted) {
      BATON_ASSIGN([[maybe_unused]] const sched::RequestId id, engine->submit(std::move(specs[submitted]), sink));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  engine->wait_idle();
  return engine->metrics();
}

boost::json::object times_of(const engine::StepTimes& t) {
  return {{"mean_us", t.mean() / 1e3},
          {"p50_us", static_cast<double>(t.quantile(0.5)) / 1e3},
          {"p99_us", static_cast<double>(t.quantile(0.99)) / 1e3},
          {"max_us", static_cast<double>(t.max()) / 1e3}};
}

void print_times(const char* what, const engine::StepTimes& t) {
  fmt::print("{:<18}mean {:.1f} us, median {:.1f}, 99th percentile {:.1f}, largest {:.1f}\n", what, t.mean() / 1e3,
             static_cast<double>(t.quantile(0.5)) / 1e3, static_cast<double>(t.quantile(0.99)) / 1e3, static_cast<double>(t.max()) / 1e3);
}

boost::json::object to_json(const std::vector<Point>& points, const engine::EngineMetrics& host, const Arguments& a) {
  boost::json::object root;
  boost::json::array& list = root["throughput"].emplace_array();
  for (const Point& p : points)
    list.emplace_back(boost::json::object{{"batch", p.batch},
                                          {"prefix_share", p.share},
                                          {"prompt_tokens", a.prompt},
                                          {"generated_tokens", a.generate},
                                          {"decode_tokens_per_s", p.decode},
                                          {"total_tokens_per_s", p.total},
                                          {"first_token_s", p.first},
                                          {"cached_share", p.cached}});
  root["host"] = {{"requests", a.host_requests},
                  {"cycles", host.host_time.count()},
                  {"time", times_of(host.host_time)},
                  {"processor", times_of(host.host_cpu)}};
  return root;
}

Status bench(const Arguments& a) {
  std::optional<PendingFile> json;  // now, so that a path that cannot be written is found before the work
  if (!a.json_file.empty()) {
    BATON_ASSIGN(PendingFile file, PendingFile::create(a.json_file));
    json.emplace(std::move(file));
  }
  std::vector<Point> points;
  if (!a.host_only) {
    BATON_ASSIGN(points, measure_model(a));
  }
  BATON_ASSIGN(const engine::EngineMetrics host, measure_host(a.host_requests));
  if (!points.empty()) {
    fmt::print("prompts of {} tokens, {} generated, median of {} rounds\n", a.prompt, a.generate, a.rounds);
    fmt::print("{:>6} {:>13} {:>13} {:>9} {:>13} {:>13} {:>8}\n", "batch", "prefix share", "decode tok/s", "times b1", "total tok/s",
               "first token", "cached");
    for (const Point& p : points) {
      const auto one = std::find_if(points.begin(), points.end(), [&p](const Point& q) { return q.share == p.share && q.batch == 1; });
      fmt::print("{:>6} {:>13.2f} {:>13.1f} {:>9} {:>13.1f} {:>11.1f}ms {:>7.0f}%\n", p.batch, p.share, p.decode,
                 one != points.end() ? fmt::format("{:.2f}", p.decode / one->decode) : "-", p.total, p.first * 1e3, p.cached * 100);
    }
  }
  fmt::print("host per cycle, {} requests on a device that takes no time, {} cycles:\n", a.host_requests, host.host_time.count());
  print_times("  time", host.host_time);
  print_times("  processor time", host.host_cpu);
  if (!json) return {};
  BATON_TRY(json->write(boost::json::serialize(to_json(points, host, a)) + "\n"));
  return json->commit();
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* group = app.add_subcommand("bench", "Measure");
  group->require_subcommand(1);
  add_bench_cycle(*group, exit_code);
  add_bench_prefill(*group, exit_code);
  add_bench_serve(*group, exit_code);
  add_bench_speculation(*group, exit_code);
  CLI::App* c = group->add_subcommand("engine", "Throughput by batch and shared prefix, and the host's time per cycle");
  CLI::Option* model = c->add_option("--model", a->model, "Checkpoint folder");
  CLI::Option* host = c->add_flag("--host-only", a->host_only, "Only the host's time, which needs no model");
  c->add_option("--batch", a->batches, "Requests at once, several separated by commas")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 12));
  c->add_option("--prefix-share", a->shares, "Part of each prompt that is common to all, several separated by commas")
      ->delimiter(',')
      ->capture_default_str()
      ->check(between(0, 1, "a number from 0 to 1"));
  c->add_option("--prompt-tokens", a->prompt, "Tokens of a prompt")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  c->add_option("--max-tokens", a->generate, "Tokens to generate")->capture_default_str()->check(CLI::Range(2, 1 << 20));
  c->add_option("--rounds", a->rounds, "Rounds of which the median counts")->capture_default_str()->check(CLI::Range(1, 1000));
  c->add_option("--host-requests", a->host_requests, "Requests at once for the host's time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 14));
  c->add_option("--json", a->json_file, "Also write the figures to this file");
  a->flags.add_to(*c);
  c->callback([a, model, host, &exit_code] {
    if (model->count() + host->count() == 0) throw CLI::RequiredError("--model or --host-only");
    exit_code = finish(bench(*a));
  });
}

}  // namespace baton::app
