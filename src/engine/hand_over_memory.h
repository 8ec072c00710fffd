// What of a model's pages and slots crosses in a hand-over, and where it lies: the bytes that a model registered, but for what means
// nothing outside the slot that it is in.
#pragma once

#include "cache/budget.h"
#include "engine/serial_executor.h"
#include "transfer/transport.h"

namespace baton::engine {

// Numbers of arrays are those of the layout's ranges, so that instances of one model and one set of cache types mean the same by them.
// `fingerprint` says of what they are (fingerprint.h).
transfer::Memory hand_over_memory(const SerialExecutor& executor, const model::CacheLayout& layout, const cache::Budget& budget,
                                  uint64_t fingerprint);

}  // namespace baton::engine
