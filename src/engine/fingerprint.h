// What an instance's pages and slots are of, as a number: a model, the types that it is kept in, and who drafts. Instances with different
// ones must not hand over to each other: sizes may be equal, and the bytes would mean nothing.
#pragma once

#include <cstdint>

#include "model/cache_layout.h"
#include "model/checkpoint.h"

namespace baton::engine {

// Of every tensor its name, type, shape, and bytes from its beginning, middle and end; of the layout what crosses in a hand-over. Reads a
// page or two of each tensor, not the checkpoint.
uint64_t fingerprint(const model::Checkpoint& checkpoint, const model::CacheTypes& types, const model::CacheLayout& layout);

}  // namespace baton::engine
