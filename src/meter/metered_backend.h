// A backend that stands before another one and keeps account of its ops.
//
// Threads: one at a time. Only one exists at a time in a process.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "meter/op_cost.h"
#include "ops/timeline.h"

namespace baton::meter {

// The calls of one op with one shape.
struct OpRow {
  std::string_view op{};
  std::string shape{};
  int64_t calls = 0;
  double flop = 0;  // of all calls
  double bytes = 0;
  double seconds = 0;
  Arithmetic arithmetic = Arithmetic::kNone;
};

class MeteredBackend final : public ops::Backend {
 public:
  // `most_calls` between start and finish. `timeline` has room for two points for each.
  MeteredBackend(ops::Backend& inner, std::unique_ptr<ops::Timeline> timeline, size_t most_calls);
  ~MeteredBackend() override;

  // Ops are counted from here on: what each has to do. Slow.
  void start_counting();
  // Ops are timed from here on; the same calls in the same order as were counted. May be repeated: times of all rounds are added up.
  void start_timing();
  // Neither any more. Waits for the device after timing.
  void finish();

  // What was counted, with the mean time of the rounds that were timed, in the order of first calls.
  std::vector<OpRow> rows() const;
  double seconds() const;          // of a round, from its first op to the end of its last
  double seconds_between() const;  // of which no op ran
  size_t rounds() const { return rounds_; }

  const ops::OpTable& ops() const override { return mode_ == Mode::kOff ? inner_.ops() : table_; }
  ops::Executor& executor() override { return inner_.executor(); }
  Result<Buffer> allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override { inner_.copy_to_device(device, host, bytes); }
  void copy_to_host(void* host, const void* device, int64_t bytes) override { inner_.copy_to_host(host, device, bytes); }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { inner_.copy_on_device(to, from, bytes); }
  void clear_on_device(void* device, int64_t bytes) override { inner_.clear_on_device(device, bytes); }
  void synchronize() override { inner_.synchronize(); }
  int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const override { return inner_.weight_bytes(dtype, n, k); }
  void store_weight(void* device, ConstMatrixView host) override { inner_.store_weight(device, host); }
  bool prepare_experts(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                       ops::ActivationQuant quant) override {
    return inner_.prepare_experts(gate, up, down, quant);
  }

 private:
  enum class Mode : uint8_t { kOff, kCount, kTime };
  struct Call {
    std::string_view op;
    OpCost cost;
    double seconds = 0;  // of all rounds
  };

  template <auto Entry, class Params>
  static void run(ops::Context& ctx, const Params& p);
  template <auto Entry>
  void wrap(const char* name);

  ops::Backend& inner_;
  std::unique_ptr<ops::Timeline> timeline_;
  size_t most_calls_;
  ops::OpTable table_;
  Mode mode_ = Mode::kOff;
  std::vector<Call> calls_;
  size_t next_ = 0;  // of the running round
  size_t rounds_ = 0;
  double total_ = 0;  // of all rounds
};

}  // namespace baton::meter
