#include "pd/states.h"

namespace baton::pd {

const char* name(OrderState state) {
  constexpr std::array<const char*, Transitions<OrderState>::kStates> kNames = {"none", "open",    "receiving", "verifying", "quarantined",
                                                                                "done", "revoked", "expired",   "failed"};
  return kNames[static_cast<size_t>(state)];
}

const char* name(JobState state) {
  constexpr std::array<const char*, Transitions<JobState>::kStates> kNames = {"none", "queued",  "computing", "sending", "revoking",
                                                                              "done", "revoked", "expired",   "failed"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace baton::pd
