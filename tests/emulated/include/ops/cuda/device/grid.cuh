// Stands in for the device's header: launches do not overlap.
#pragma once

namespace baton::cuda {

inline void wait_for_predecessor() {}
inline void allow_successor() {}

}  // namespace baton::cuda
