// Any bytes as a safetensors file: refused, or every range lies inside the file, without overlap, and of the size that its shape takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "model/safetensors.h"

volatile unsigned g_sink = 0;  // keeps the reads

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto tensors = baton::model::parse_safetensors(file, "fuzz");
  if (!tensors.ok()) {
    if (tensors.error().message.empty()) std::abort();
    return 0;
  }
  int64_t covered = 8;
  unsigned sum = 0;
  for (const auto& t : *tensors) {
    if (t.begin < covered || t.end < t.begin || t.end > static_cast<int64_t>(size)) std::abort();
    covered = t.end;
    int64_t elements = 1;
    for (const int64_t s : t.shape) elements *= s;
    if (t.type && elements * baton::dtype_bytes(*t.type) != t.end - t.begin) std::abort();
    for (int64_t i = t.begin; i < t.end; ++i) sum += data[i];  // readable
  }
  g_sink = sum;
  return 0;
}
