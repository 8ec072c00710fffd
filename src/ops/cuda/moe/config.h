// Problem to configuration of the expert path. Pure: no CUDA, tested on any machine.
#pragma once

#include <cstdint>

namespace baton::cuda::moe {

struct Problem {
  int64_t rows = 0;           // rows of the batch (after the all-gather), an upper bound
  int32_t choices = 0;        // experts a row chooses among all
  int32_t experts_total = 0;  // of the model
  int32_t experts_local = 0;  // held by this rank
  int64_t width = 0;          // of the rows (d)
  int64_t inner = 0;          // of an expert (i)
};

// Instantiations of the expert kernel.
enum class Variant : uint8_t {
  kDecode,  // weights on the M side, up to 64 rows a tile
  kMedium,  // weights on the M side, up to 128 rows
  kPrefill  // rows on the M side, 128 a tile
};

struct Config {
  Variant variant = Variant::kDecode;
  int32_t tile_rows = 0;    // most rows of one tile
  bool even = true;         // row blocks of an expert of equal size
  int64_t slots = 0;        // capacity of the slot panels, a multiple of 8
  int32_t max_units = 0;    // most row blocks over all experts
  int32_t plan_blocks = 0;  // blocks of the plan kernels
};

// Nothing about these sizes is unsupported.
bool supported(const Problem& problem);
Config configure(const Problem& problem);
Config configure(const Problem& problem, Variant variant);  // with the choice made: benchmarks and tests

struct WorkspaceLayout {
  int64_t x, x_scale, h, h_scale, y, row_slot, units, control, ready, block_counts;  // byte offsets
  int64_t bytes;
};
WorkspaceLayout workspace_layout(const Problem& problem, const Config& config);

}  // namespace baton::cuda::moe
