// Stands in for the device's header: see emulated/simt.h.
#pragma once

#include "emulated/simt.h"

namespace baton::cuda {

inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(static_cast<const std::byte*>(p) - emulated::shared); }

}  // namespace baton::cuda
