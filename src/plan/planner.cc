#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::plan {
namespace {

double sum_of(const std::vector<Work>& all, const Gpu& gpu, const Efficiency* efficiency) {
  double seconds = 0;
  for (const Work& w : all) seconds += efficiency ? expected_seconds(w, gpu, *efficiency) : floor_seconds(w, gpu);
  return seconds;
}

std::vector<Work> cycle_of(const model::Config& config, const Machine& machine, double context, double requests) {
  return decode_work(config, {.layout = machine.layout,
                              .gpus = static_cast<double>(machine.gpus),
                              .requests = requests,
                              .rows = static_cast<double>(machine.cache.rows),
                              .context = context,
                              .drafter = machine.cache.drafter,
                              .accepted = machine.accepted,
                              .state_bytes = static_cast<double>(dtype_bytes(machine.cache.state)),
                              .fp8_latent = machine.cache.latent == DType::kF8E4M3,
                              .fold = machine.cache.replay});
}

std::vector<Work> chunk_of(const model::Config& config, const Machine& machine, double chunk, double past) {
  return prefill_work(config, {.gpus = static_cast<double>(machine.gpus),
                               .split_experts = machine.split_experts,
                               .chunk = chunk,
                               .past = past,
                               .fp8_transport = machine.fp8_transport});
}

DecodePlan plan_decode(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency) {
  const double context = load.prompt_tokens + load.output_tokens;
  DecodePlan p;
  p.memory = plan_memory(config, machine.gpu,
                         {.layout = machine.layout,
                          .gpus = machine.gpus,
                          .cache = machine.cache,
                          .context_tokens = static_cast<int64_t>(context),
                          .shared_tokens = static_cast<int64_t>(load.shared * load.prompt_tokens),
                          .reserve_bytes = machine.reserve_bytes});
  if (p.memory.running == 0) return p;
  const double mean_context = load.prompt_tokens + load.output_tokens / 2;
  const auto at = [&](double requests) { return decode_point(config, machine, efficiency, mean_context, requests); };
  const auto most = static_cast<double>(p.memory.running);
  for (double r = 1; r < most; r *= 2) p.curve.push_back(at(r));
  p.curve.push_back(at(most));

  double requests = most;
  p.limit = Limit::kMemory;
  if (load.concurrency > 0 && load.concurrency <= requests) {
    requests = load.concurrency;
    p.limit = Limit::kConcurrency;
  }
  if (at(requests).tpot_seconds > load.tpot_seconds) {
    if (at(1).tpot_seconds > load.tpot_seconds) {
      p.limit = Limit::kTooSlow;
      return p;
    }
    // Cycles only grow with the requests: the last number that is fast enough.
    double low = 1, high = requests;
    while (high - low > 1) {
      const double middle = std::floor((low + high) / 2);
      (at(middle).tpot_seconds <= load.tpot_seconds ? low : high) = middle;
    }
    requests = low;
    p.limit = Limit::kTpot;
  }
  p.point = at(requests);
  p.work = cycle_of(config, machine, mean_context, requests);
  return p;
}

PrefillPlan plan_prefill(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency) {
  PrefillPlan p;
  const double cached = load.shared * load.prompt_tokens;
  const double fresh = load.prompt_tokens - cached;
  for (double done = 0; done < fresh;) {
    const double chunk = std::min(machine.chunk, fresh - done);
    auto work = chunk_of(config, machine, chunk, cached + done + chunk / 2);
    p.chunk_seconds.push_back(sum_of(work, machine.gpu, &efficiency));
    p.ttft_seconds += p.chunk_seconds.back();
    done += chunk;
    if (p.work.empty() || done <= fresh / 2 + machine.chunk / 2) p.work = std::move(work);
  }
  if (p.ttft_seconds <= 0) return p;
  p.tokens_per_second = fresh / p.ttft_seconds;
  // M/D/1: a prompt waits use / (2 (1 - use)) of the time that one takes.
  const double slack = load.ttft_seconds / p.ttft_seconds - 1;
  const double use = slack <= 0 ? 0 : 2 * slack / (1 + 2 * slack);
  p.requests_per_second = use / p.ttft_seconds;
  return p;
}

}  // namespace

double expected_seconds(const Work& w, const Gpu& gpu, const Efficiency& e) {
  if (const auto found = e.measured.find(w.op); found != e.measured.end()) return floor_seconds(w, gpu) / found->second;
  const double one =
      std::max({w.flop / (w.fp8 ? gpu.fp8 : gpu.bf16) / e.compute, w.bytes / gpu.read / e.memory, w.peer_bytes / gpu.peer / e.peer});
  return w.repeats * (one + w.kernels * e.kernel_seconds);
}

const char* limit_text(Limit limit) {
  switch (limit) {
    case Limit::kMemory: return "memory: no more requests fit";
    case Limit::kTpot: return "time per output token: more requests would be too slow";
    case Limit::kConcurrency: return "the requests that are there: memory and time would take more";
    case Limit::kNothingFits: return "memory: not one request fits beside the weights";
    case Limit::kTooSlow: return "time per output token: even one request is too slow";
  }
  return "";
}

DecodePoint decode_point(const model::Config& config, const Machine& machine, const Efficiency& efficiency, double context,
                         double requests) {
  const std::vector<Work> work = cycle_of(config, machine, context, requests);
  DecodePoint p{.requests = requests,
                .floor_seconds = sum_of(work, machine.gpu, nullptr),
                .expected_seconds = sum_of(work, machine.gpu, &efficiency)};
  p.tpot_seconds = p.expected_seconds / machine.accepted;
  p.tokens_per_second = requests * machine.accepted / p.expected_seconds;
  return p;
}

double chunk_seconds(const model::Config& config, const Machine& machine, const Efficiency& efficiency, double chunk, double past) {
  return sum_of(chunk_of(config, machine, chunk, past), machine.gpu, &efficiency);
}

Plan make_plan(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency) {
  Plan p;
  p.decode = plan_decode(config, machine, load, efficiency);
  p.prefill = plan_prefill(config, machine, load, efficiency);
  p.decode_requests_per_second = p.decode.point.tokens_per_second / load.output_tokens;
  if (p.prefill.requests_per_second > 0) p.prefill_per_decode = p.decode_requests_per_second / p.prefill.requests_per_second;
  return p;
}

std::vector<Change> helpful_changes(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency) {
  const auto per_gpu = [&](const Machine& m, const Load& l) {
    return plan_decode(config, m, l, efficiency).point.tokens_per_second / static_cast<double>(m.gpus);
  };
  const double now = per_gpu(machine, load);
  std::vector<Change> changes;
  const auto consider = [&](std::string name, const Machine& m, const Load& l) {
    const double then = per_gpu(m, l);
    const double gain = now > 0 ? then / now - 1 : (then > 0 ? 1 : 0);
    if (gain >= 0.01) changes.push_back({std::move(name), then * static_cast<double>(m.gpus), gain});
  };
  const auto with = [&](auto change) {
    Machine m = machine;
    change(m);
    return m;
  };
  if (machine.cache.latent != DType::kF8E4M3) consider("FP8 latent cache", with([](Machine& m) { m.cache.latent = DType::kF8E4M3; }), load);
  if (machine.cache.state != DType::kBF16) consider("BF16 state", with([](Machine& m) { m.cache.state = DType::kBF16; }), load);
  if (!machine.cache.replay) consider("replay instead of a state for each row", with([](Machine& m) { m.cache.replay = true; }), load);
  if (machine.layout == Layout::kTensor)
    consider("requests divided among the GPUs, experts whole (dp-ep)", with([](Machine& m) { m.layout = Layout::kByRequest; }), load);
  else
    consider("layers split among the GPUs (tp)", with([](Machine& m) { m.layout = Layout::kTensor; }), load);
  consider(fmt::format("{} GPUs an instance", 2 * machine.gpus), with([](Machine& m) { m.gpus *= 2; }), load);
  if (machine.gpus > 1) consider(fmt::format("{} GPUs an instance", machine.gpus / 2), with([](Machine& m) { m.gpus /= 2; }), load);
  Load slower = load;
  slower.tpot_seconds *= 2;
  consider("twice the time per output token", machine, slower);
  Load more = load;
  more.concurrency *= 2;
  if (load.concurrency > 0) consider("twice the requests", machine, more);
  std::ranges::sort(changes, [](const Change& a, const Change& b) { return a.per_gpu > b.per_gpu; });
  return changes;
}

}  // namespace baton::plan
