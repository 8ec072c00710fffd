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
  s.first_stop = bind.prompt + request.min_tokens;
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

ops::SamplingRow SlotSampling::guess(int32_t slot, int32_t position) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  ops::SamplingRow row = s.row;
  row.position = position;
  row.logprobs = -1;
  if (s.penalises) {
    row.seen = s.seen.data();
    row.seen_count = static_cast<int32_t>(s.seen.size());
  }
  return row;
}

void SlotSampling::rows(int32_t slot, int32_t position, std::span<const int32_t> drafts, std::vector<ops::SamplingRow>& rows) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.penalises && s.along.size() < drafts.size()) s.along.resize(drafts.size());
  for (size_t i = 0; i <= drafts.size(); ++i) {
    ops::SamplingRow row = s.row;
    row.position = position + static_cast<int32_t>(i);
    if (row.position < s.first_stop) {
      row.banned = s.stop_tokens.data();
      row.banned_count = static_cast<int32_t>(s.stop_tokens.size());
    }
    if (s.penalises) {
      if (i > 0) {
        see(s, drafts[i - 1], true);
        s.along[i - 1] = s.seen;
      }
      const std::vector<ops::SeenToken>& seen = i == 0 ? s.seen : s.along[i - 1];
      row.seen = seen.data();
      row.seen_count = static_cast<int32_t>(seen.size());
    }
    rows.push_back(row);
  }
  if (!s.penalises || drafts.empty()) return;
  for (size_t i = drafts.size(); i-- > 0;) unsee(s, drafts[i]);
  // `seen` may have moved while it grew.
  ops::SamplingRow& first = rows[rows.size() - drafts.size() - 1];
  first.seen = s.seen.data();
  first.seen_count = static_cast<int32_t>(s.seen.size());
}

void SlotSampling::drawn(int32_t slot, int32_t token) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.penalises && token >= 0) see(s, token, true);
}

// What see() did last for `token`.
void SlotSampling::unsee(Slot& s, int32_t token) {
  int32_t& place = s.place[static_cast<size_t>(token)];
  ops::SeenToken& t = s.seen[static_cast<size_t>(place)];
  if (--t.generated > 0 || t.prompt > 0) return;
  s.seen.pop_back();  // tokens that are new come last, and go in reverse
  place = -1;
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
