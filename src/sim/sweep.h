// Worlds by the seed: many of them, one apart from this process, and the shortest course of events that still goes wrong.
#pragma once

#include <functional>
#include <string>

#include "sim/world.h"

namespace baton::sim {

// In a process of its own, so that a broken invariant, which stops the process, is an outcome too.
Outcome run_apart(const WorldOptions& options);

// Leaves out time, faults, mishaps and requests as long as something goes wrong still, in at most `most_runs` attempts.
WorldOptions shrink(const WorldOptions& failing, Outcome& outcome, int32_t most_runs = 300);

// How the program is called to see this world.
std::string command_line(const WorldOptions& options);

// What a sweep has seen, for people. The transitions that never happened are in `missing`.
std::string describe(const Tally& tally);
std::string missing(const Tally& tally);

}  // namespace baton::sim
