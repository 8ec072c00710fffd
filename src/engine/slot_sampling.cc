#include "engine/slot_sampling.h"

#include "base/random.h"

namespace baton::engine {

uint64_t seed_of_choice(uint64_t seed, int32_t choice) {
  if (choice == 0) return seed;
  const PhiloxBlock block = philox(seed, {static_cast<uint32_t>(choice), 0, 0, 1});
  return uint64_t{block[0]} | uint64_t{block[1]} << 32U;
}

SlotSampling::SlotSampling(int32_t slots, int64_t vocabulary) : slots_(static_cast<size_t>(slots)), vocabulary_(vocabulary) {}

void SlotSampling::bind(const sched::Bind& bind, const sched::RequestSpec& request, std::span<const int32_t> history) {
  Slot& s = slots_[static_cast<size_t>(bind.slot)];
  const sched::Sampling& from = request.sampling;
  for (const ops::SeenToken& t : s.seen) s.place[static_cast<size_t>(t.token)] = -1;
  s.seen.clear();
  s.bias.clear();
  for (const auto& [token, bias] : from.logit_bias) s.bias.push_back({token, bias});
  s.stop_tokens = request.stop_tokens;
  s.penalises = from.penalises();
  s.row = {.temperature = from.temperature,
           .top_p = from.top_p,
           .seed = seed_of_choice(from.seed, bind.choice),
           .top_k = from.top_k,
           .min_p = from.min_p,
           .repetition_penalty = from.repetition_penalty,
           .frequency_penalty = from.frequency_penalty,
           .presence_penalty = from.presence_penalty,
           .bias = s.bias.data(),
           .bias_count = static_cast<int32_t>(s.bias.size()),
           .logprobs = from.logprobs};
  if (!s.penalises) return;
  s.place.resize(static_cast<size_t>(vocabulary_), -1);
  for (size_t i = 0; i < history.size(); ++i) see(s, history[i], i >= static_cast<size_t>(bind.prompt));
}

ops::SamplingRow SlotSampling::row(const sched::Draw& draw) const {
  const Slot& s = slots_[static_cast<size_t>(draw.slot)];
  ops::SamplingRow row = s.row;
  row.position = draw.position;
  if (s.penalises) {
    row.seen = s.seen.data();
    row.seen_count = static_cast<int32_t>(s.seen.size());
  }
  if (!draw.may_stop) {
    row.banned = s.stop_tokens.data();
    row.banned_count = static_cast<int32_t>(s.stop_tokens.size());
  }
  return row;
}

void SlotSampling::drawn(int32_t slot, int32_t token) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.penalises && token >= 0) see(s, token, true);
}

void SlotSampling::see(Slot& s, int32_t token, bool generated) {
  int32_t& place = s.place[static_cast<size_t>(token)];
  if (place < 0) {
    place = static_cast<int32_t>(s.seen.size());
    s.seen.push_back({token, 0, 0});
  }
  ops::SeenToken& t = s.seen[static_cast<size_t>(place)];
  if (generated)
    ++t.generated;
  else
    t.prompt = 1;
}

}  // namespace baton::engine
