// Runs a backend on a golden folder and compares everything that it records.
#pragma once

#include "base/result.h"
#include "golden/folder.h"
#include "golden/measure.h"
#include "ops/cpu/isa.h"

namespace baton::golden {

enum class Mode {
  kFp32,    // activations and caches in float: the tolerances "fp32", every choice equal
  kBf16,    // bfloat16 activations and caches, float state: the tolerances "bf16"
  kFp8Act,  // float, inputs of FP8 matrices rounded per token and 128 columns: the tensors q.*, tolerances "fp8_act"
};

struct CheckOptions {
  Mode mode = Mode::kFp32;
  int threads = 2;
  cpu::Isa isa = cpu::Isa::kPlain;
  bool cuda = false;        // the CUDA device, in memory that the host reads as well
  bool plain_cuda = false;  // its plain bodies only
  int64_t chunk = 0;        // prompt rows per launch; 0: all at once
};

Result<Report> check_folder(const Folder& folder, const CheckOptions& options);

}  // namespace baton::golden
