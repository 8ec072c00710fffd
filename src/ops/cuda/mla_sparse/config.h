// Problem to configuration of sparse attention. Pure: no CUDA, tested on any machine.
#pragma once

#include <cstdint>

#include "ops/mla_sparse.h"

namespace baton::cuda::mla {

struct Config {
  int32_t head_blocks = 0;
  int32_t splits = 1;    // of a row's tokens; the parts are put together by a second kernel
  bool prefill = false;  // the kernel for many rows (prefill.cuh): BF16 rows, one split. Other bits than the other kernel's
  int64_t items = 0;     // blocks of the attention kernel
  int64_t workspace_bytes = 0;
};

// Nothing about these sizes and types is unsupported. Reads no data pointer.
bool supported(const ops::MlaAttendParams& params);

// Splits few rows so that they fill `multiprocessors`. The bits of a row depend on the number of splits, so a caller that promises bits
// independent of the batch passes one_split.
Config configure(const ops::MlaAttendParams& params, int multiprocessors, bool one_split);
Config configure(const ops::MlaAttendParams& params, int splits);  // with the choice made: benchmarks and tests

}  // namespace baton::cuda::mla
