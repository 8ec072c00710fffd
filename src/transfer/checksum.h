// The checksum of a part: over bytes in the order of the receiver's layout, so that sender and receiver, who take different ways to the
// same bytes, get the same number.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"

namespace baton::transfer {

class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) {
    BATON_CHECK(state_ != nullptr);
    XXH3_64bits_reset(state_.get());
  }
  void add(const std::byte* p, int64_t bytes) { XXH3_64bits_update(state_.get(), p, static_cast<size_t>(bytes)); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace baton::transfer
