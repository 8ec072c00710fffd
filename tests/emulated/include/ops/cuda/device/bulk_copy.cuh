// Stands in for the device's header.
#pragma once

#include "emulated/simt.h"

namespace baton::cuda {

inline void bulk_prefetch(const void*, uint32_t) {}

}  // namespace baton::cuda
