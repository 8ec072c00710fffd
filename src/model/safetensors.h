// The header of a safetensors file: 8 bytes little-endian length, that much JSON, then the tensors' bytes without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/number.h"

namespace baton::model {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;          // as written
  std::optional<DType> type;  // empty: a dtype that the engine does not compute with
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the file
  int64_t end = 0;
};

// Validates everything that the header claims against `file`, the whole content: every range lies inside the file, ranges do not overlap
// and leave no gap, sizes agree with dtype and shape, names are unique. Never reads a tensor's bytes. `where` names the file in messages.
// Tensors come in the order of their bytes.
Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const std::byte> file, const std::string& where);

// Spelling of a storage type in a header.
std::string_view safetensors_dtype(DType type);

}  // namespace baton::model
