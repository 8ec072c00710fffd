#include "model/host_sampling.h"

#include <algorithm>
#include <cstring>

namespace baton::model {
namespace {

constexpr int64_t kAlignment = 16;

// Places arrays one behind the other.
class Packing {
 public:
  template <class T>
  int64_t place(int64_t count) {
    const int64_t at = bytes_;
    bytes_ = align_up(bytes_ + count * static_cast<int64_t>(sizeof(T)), kAlignment);
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace

void HostSampling::sample(const ops::SampleParams& host) {
  const int64_t m = host.logits.rows;
  if (m == 0) return;
  const int64_t words = (host.logits.cols + 31) / 32;
  const std::span rows(host.rows, static_cast<size_t>(m));
  // Inputs, then outputs.
  Packing packing;
  const int64_t rows_at = packing.place<ops::SamplingRow>(m);
  const int64_t arrays_at = packing.bytes();
  for (const ops::SamplingRow& r : rows) {
    packing.place<ops::SeenToken>(r.seen_count);
    packing.place<ops::LogitBias>(r.bias_count);
    packing.place<int32_t>(r.banned_count);
    packing.place<uint32_t>(r.allowed == nullptr ? 0 : words);
  }
  const int64_t input_bytes = packing.bytes();
  const int64_t ids_at = packing.place<int32_t>(m);
  const int64_t logprobs_at = packing.place<float>(m);
  const int64_t top_at = packing.place<ops::TokenLogprob>(m * host.top_stride);
  if (packing.bytes() > memory_.bytes()) {
    memory_ = Buffer();
    auto grown = backend_->allocate(std::max(packing.bytes(), 2 * static_cast<int64_t>(staging_.size())));
    BATON_CHECK_MSG(grown.ok(), "sampling: {}", grown.error().message);
    memory_ = std::move(*grown);
    staging_.resize(static_cast<size_t>(memory_.bytes()));
  }

  std::byte* const device = memory_.data();
  int64_t at = arrays_at;
  const auto put = [&]<class T>(const T*& array, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (bytes > 0) std::memcpy(staging_.data() + at, array, static_cast<size_t>(bytes));
    array = count > 0 ? reinterpret_cast<const T*>(device + at) : nullptr;
    at = align_up(at + bytes, kAlignment);
  };
  for (int64_t i = 0; i < m; ++i) {
    ops::SamplingRow row = rows[static_cast<size_t>(i)];
    put(row.seen, row.seen_count);
    put(row.bias, row.bias_count);
    put(row.banned, row.banned_count);
    put(row.allowed, row.allowed == nullptr ? 0 : words);
    std::memcpy(staging_.data() + rows_at + i * static_cast<int64_t>(sizeof row), &row, sizeof row);
  }
  backend_->copy_to_device(device, staging_.data(), input_bytes);
  model_->sample({.logits = host.logits,
                  .rows = reinterpret_cast<const ops::SamplingRow*>(device + rows_at),
                  .ids = reinterpret_cast<int32_t*>(device + ids_at),
                  .logprobs = reinterpret_cast<float*>(device + logprobs_at),
                  .top = reinterpret_cast<ops::TokenLogprob*>(device + top_at),
                  .top_stride = host.top_stride,
                  .probabilities = host.probabilities});
  backend_->copy_to_host(staging_.data() + ids_at, device + ids_at, packing.bytes() - ids_at);
  std::memcpy(host.ids, staging_.data() + ids_at, static_cast<size_t>(m) * sizeof(int32_t));
  for (int64_t i = 0; i < m; ++i) {
    const ops::SamplingRow& row = rows[static_cast<size_t>(i)];
    if (row.logprobs < 0) continue;
    std::memcpy(host.logprobs + i, staging_.data() + logprobs_at + i * 4, sizeof(float));
    if (row.logprobs > 0)
      std::memcpy(host.top + i * host.top_stride,
                  staging_.data() + top_at + i * host.top_stride * static_cast<int64_t>(sizeof(ops::TokenLogprob)),
                  static_cast<size_t>(row.logprobs) * sizeof(ops::TokenLogprob));
  }
}

}  // namespace baton::model
