// What the server measures: one table of metrics (name, kind, help, vLLM's name) that makes the text of /metrics and its page of the docs.
//
// Counting is from any thread and without locks; reading sees each number exactly, not all of one moment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "fleet/post.h"
#include "http/listener.h"
#include "text/grammar.h"

namespace baton::server {

// With a label, the cells of a counter are its values, in the order of the enumerators.
enum class Ended : uint8_t { kStop, kLength, kToolCalls, kCount };
enum class Failed : uint8_t { kCancelled, kDeadline, kConstraint, kNotFinite, kDevice, kPrefill, kCount };
enum class Refused : uint8_t { kInvalid, kUnauthorized, kNotFound, kQueueFull, kBusy, kDraining, kNoPrefill, kCount };
enum class Stage : uint8_t { kPreparing, kWaiting, kAnswering, kCount };

template <class Label>
class LabelledCounter {
 public:
  void add(Label label, int64_t n = 1) { cells_[static_cast<size_t>(label)].fetch_add(n, std::memory_order_relaxed); }
  int64_t value(size_t cell) const { return cells_[cell].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, static_cast<size_t>(Label::kCount)> cells_{};
};

class Histogram {
 public:
  // Upper edges of the buckets, ascending, in nanoseconds.
  explicit Histogram(std::span<const int64_t> edges) : edges_(edges) {}
  void observe(int64_t nanoseconds, int64_t times = 1) {
    size_t b = 0;
    while (b < edges_.size() && nanoseconds > edges_[b]) ++b;
    buckets_[b].fetch_add(times, std::memory_order_relaxed);
    sum_.fetch_add(nanoseconds * times, std::memory_order_relaxed);
  }
  std::span<const int64_t> edges() const { return edges_; }
  int64_t bucket(size_t b) const { return buckets_[b].load(std::memory_order_relaxed); }
  int64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMostBuckets = 32;
  std::span<const int64_t> edges_;
  std::array<std::atomic<int64_t>, kMostBuckets> buckets_{};
  std::atomic<int64_t> sum_{0};
};

struct Metrics {
  Metrics();

  std::atomic<int64_t> requests{0};       // that were taken, one for each prompt
  std::atomic<int64_t> open{0};           // of these, not over; now
  std::atomic<int64_t> prompt_tokens{0};  // of requests that were taken
  std::atomic<int64_t> cached_tokens{0};
  std::atomic<int64_t> completion_tokens{0};
  std::atomic<int64_t> reasoning_tokens{0};
  std::atomic<int64_t> chunks{0};  // written to streams
  std::atomic<int64_t> ignored_fields{0};
  LabelledCounter<Ended> ended;  // choices
  LabelledCounter<Failed> failed;
  LabelledCounter<Refused> refused;
  LabelledCounter<Stage> cancelled;  // by clients that went away
  Histogram queue, first_token, between_tokens, whole, preparing;
};

// What numbers are read from when they are asked for.
struct MetricSources {
  const Metrics& server;
  engine::EngineMetrics engine;
  http::Counters http;
  text::GrammarCompiler::Counters grammars;
  int64_t answer_bytes = 0;  // of whole answers that are made or sent
  size_t preparing = 0;      // requests that wait to be read
  int64_t queue_limit = 0;   // choices that may be taken at once
  fleet::Post::Totals fleet = {};
  std::string_view model;
  std::string_view version;
};

// The text format of Prometheus. `vllm`: vLLM's names, too.
std::string metrics_text(const MetricSources& sources, bool vllm);
// The page of the documentation.
std::string metrics_page();

}  // namespace baton::server
