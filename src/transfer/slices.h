// Which bytes of one process's objects belong where in another's, when the two lay them out differently: the sender cuts.
//
// A page or a slot is a set of arrays, each with a number that means the same to all (a layer's state, say). A process has a run of each
// array's bytes, or none: a rank has some heads of a layer and not the others. From its own runs and those of the receiver a sender makes
// the list of copies once, and uses it for every object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace baton::transfer {

// Bytes first ... first + bytes - 1 of an array lie at `offset` of the object.
struct Run {
  uint32_t array = 0;
  int64_t first = 0;
  int64_t bytes = 0;
  int64_t offset = 0;
};

struct Slice {
  int64_t from = 0;  // offset in the sender's object
  int64_t to = 0;    // offset in the receiver's
  int64_t bytes = 0;
};

// What the sender has of what the receiver wants, in the order of the receiver's runs; slices that touch at both ends are one.
std::vector<Slice> slices(std::span<const Run> sender, std::span<const Run> receiver);

// Whether these senders together have everything that the receiver wants, each byte once. Names the first that is missing or there twice.
Status check_cover(std::span<const std::vector<Run>> senders, std::span<const Run> receiver);

}  // namespace baton::transfer
