#include "meter/metered_backend.h"

#include <algorithm>

#include "base/check.h"

namespace baton::meter {
namespace {

MeteredBackend* g_active = nullptr;  // entries of the table are plain functions

template <auto Entry>
const char* g_name = nullptr;

template <class Use>
void for_each_op(const Use& use) {
  using T = ops::OpTable;
  use.template operator()<&T::embed>("embed");
  use.template operator()<&T::rms_norm>("rms_norm");
  use.template operator()<&T::gemm>("gemm");
  use.template operator()<&T::gemm_batched>("gemm_batched");
  use.template operator()<&T::gated_mlp>("gated_mlp");
  use.template operator()<&T::mhc_mix>("mhc_mix");
  use.template operator()<&T::mhc_expand>("mhc_expand");
  use.template operator()<&T::mhc_final>("mhc_final");
  use.template operator()<&T::kda>("kda");
  use.template operator()<&T::kda_fold>("kda_fold");
  use.template operator()<&T::latent_write>("latent_write");
  use.template operator()<&T::indexer_keys>("indexer_keys");
  use.template operator()<&T::indexer_select>("indexer_select");
  use.template operator()<&T::mla_attend>("mla_attend");
  use.template operator()<&T::mla_attend_expanded>("mla_attend_expanded");
  use.template operator()<&T::moe_route>("moe_route");
  use.template operator()<&T::moe_gate_up>("moe_gate_up");
  use.template operator()<&T::moe_down>("moe_down");
  use.template operator()<&T::moe_combine>("moe_combine");
  use.template operator()<&T::moe_experts>("moe_experts");
  use.template operator()<&T::sample>("sample");
  use.template operator()<&T::window_write>("window_write");
  use.template operator()<&T::window_attend>("window_attend");
  use.template operator()<&T::block_conv>("block_conv");
  use.template operator()<&T::draft_path>("draft_path");
}

}  // namespace

template <auto Entry, class Params>
void MeteredBackend::run(ops::Context& ctx, const Params& p) {
  MeteredBackend& m = *g_active;
  const auto& op = m.inner_.ops().*Entry;
  BATON_CHECK_MSG(m.next_ < m.most_calls_, "more than {} ops in one round", m.most_calls_);
  if (m.mode_ == Mode::kCount) {
    op.run(ctx, p);
    m.calls_.push_back({g_name<Entry>, cost_of(m.inner_, p)});
    ++m.next_;
    return;
  }
  BATON_CHECK_MSG(m.next_ < m.calls_.size() && m.calls_[m.next_].op == g_name<Entry>, "{} was not counted here", g_name<Entry>);
  m.timeline_->mark(2 * m.next_);
  op.run(ctx, p);
  m.timeline_->mark(2 * m.next_ + 1);
  ++m.next_;
}

template <auto Entry>
void MeteredBackend::wrap(const char* name) {
  auto& entry = table_.*Entry;
  const auto& original = inner_.ops().*Entry;
  entry = original;
  g_name<Entry> = name;
  const auto assign = [&]<class Params>(const ops::Op<Params>&) {
    if (original.run != nullptr) entry.run = &MeteredBackend::run<Entry, Params>;
  };
  assign(original);
}

MeteredBackend::MeteredBackend(ops::Backend& inner, std::unique_ptr<ops::Timeline> timeline, size_t most_calls)
    : inner_(inner), timeline_(std::move(timeline)), most_calls_(most_calls) {
  BATON_CHECK(g_active == nullptr);
  g_active = this;
  for_each_op([this]<auto Entry>(const char* name) { wrap<Entry>(name); });
}

MeteredBackend::~MeteredBackend() { g_active = nullptr; }

void MeteredBackend::start_counting() {
  calls_.clear();
  rounds_ = 0;
  total_ = 0;
  next_ = 0;
  mode_ = Mode::kCount;
}

void MeteredBackend::start_timing() {
  next_ = 0;
  mode_ = Mode::kTime;
}

void MeteredBackend::finish() {
  if (mode_ == Mode::kTime && next_ > 0) {
    BATON_CHECK_MSG(next_ == calls_.size(), "{} ops were counted, {} timed", calls_.size(), next_);
    const std::vector<double> parts = timeline_->seconds(2 * next_);
    for (size_t i = 0; i < next_; ++i) calls_[i].seconds += parts[2 * i];
    for (const double s : parts) total_ += s;
    ++rounds_;
  }
  mode_ = Mode::kOff;
}

std::vector<OpRow> MeteredBackend::rows() const {
  std::vector<OpRow> out;
  for (const Call& c : calls_) {
    auto row = std::find_if(out.begin(), out.end(), [&c](const OpRow& r) { return r.op == c.op && r.shape == c.cost.shape; });
    if (row == out.end()) row = out.insert(out.end(), {.op = c.op, .shape = c.cost.shape, .arithmetic = c.cost.arithmetic});
    ++row->calls;
    row->flop += c.cost.flop;
    row->bytes += c.cost.bytes;
    row->seconds += rounds_ > 0 ? c.seconds / static_cast<double>(rounds_) : 0;
  }
  return out;
}

double MeteredBackend::seconds() const { return rounds_ > 0 ? total_ / static_cast<double>(rounds_) : 0; }

double MeteredBackend::seconds_between() const {
  double in_ops = 0;
  for (const Call& c : calls_) in_ops += c.seconds;
  return rounds_ > 0 ? (total_ - in_ops) / static_cast<double>(rounds_) : 0;
}

}  // namespace baton::meter
