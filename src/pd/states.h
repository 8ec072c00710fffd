// The states of an order (decode's side) and of a job (prefill's side), which may follow which, and how often each did.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.h"

namespace baton::pd {

//            part            all parts, answer        checksums
//   kOpen ---------> kReceiving ----------> kVerifying ----------> kDone
//     |                  |                      |
//     |  cancel, deadline, patience, peer gone  |  (cancel, deadline: no write is under way any more)
//     v                  v                      v
//   kQuarantined --------------------------> kRevoked, kExpired, kFailed
//           drained, answered, or peer gone and its last writes over
// An answer that is not kDone ends an order at once: the prefill instance answers when its writes are over.
enum class OrderState : uint8_t { kNone, kOpen, kReceiving, kVerifying, kQuarantined, kDone, kRevoked, kExpired, kFailed, kCount };

//             first progress       prompt computed      last write done
//   kQueued ----------> kComputing ----------> kSending ----------> kDone
//      |                     |                     |
//      |    cancel, deadline, failure, decode process gone
//      v                     v                     v
//   kRevoking --------------------------------> kRevoked, kExpired, kFailed
//                    last write done
// A cancel of an order that has not arrived leaves kRevoked behind, so that the order finds it when it does.
enum class JobState : uint8_t { kNone, kQueued, kComputing, kSending, kRevoking, kDone, kRevoked, kExpired, kFailed, kCount };

const char* name(OrderState state);
const char* name(JobState state);

constexpr bool may_follow(OrderState from, OrderState to) {
  using S = OrderState;
  switch (from) {
    case S::kNone: return to == S::kOpen;
    case S::kOpen: return to == S::kReceiving || to == S::kQuarantined || to == S::kExpired || to == S::kFailed;
    case S::kReceiving: return to == S::kVerifying || to == S::kQuarantined || to == S::kExpired || to == S::kFailed;
    case S::kVerifying: return to == S::kDone || to == S::kRevoked || to == S::kExpired || to == S::kFailed;
    case S::kQuarantined: return to == S::kRevoked || to == S::kExpired || to == S::kFailed;
    default: return false;
  }
}

constexpr bool may_follow(JobState from, JobState to) {
  using S = JobState;
  switch (from) {
    case S::kNone: return to == S::kQueued || to == S::kRevoked;
    case S::kQueued: return to == S::kComputing || to == S::kRevoking;
    case S::kComputing: return to == S::kSending || to == S::kRevoking;
    case S::kSending: return to == S::kDone || to == S::kRevoking;
    case S::kRevoking: return to == S::kRevoked || to == S::kExpired || to == S::kFailed;
    default: return false;
  }
}

constexpr bool is_end(OrderState s) { return s >= OrderState::kDone && s < OrderState::kCount; }
constexpr bool is_end(JobState s) { return s >= JobState::kDone && s < JobState::kCount; }

template <class State>
class Transitions {
 public:
  static constexpr auto kStates = static_cast<size_t>(State::kCount);

  void move(State& state, State to) {
    BATON_CHECK_MSG(may_follow(state, to), "{} does not follow {}", name(to), name(state));
    ++counts_[static_cast<size_t>(state)][static_cast<size_t>(to)];
    state = to;
  }
  int64_t count(State from, State to) const { return counts_[static_cast<size_t>(from)][static_cast<size_t>(to)]; }
  void add(const Transitions& other) {
    for (size_t i = 0; i < kStates; ++i)
      for (size_t j = 0; j < kStates; ++j) counts_[i][j] += other.counts_[i][j];
  }

 private:
  std::array<std::array<int64_t, kStates>, kStates> counts_{};
};

}  // namespace baton::pd
