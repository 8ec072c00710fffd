// The sizes that the KDA kernels are cut for.
#pragma once

namespace baton::cuda::kda {

inline constexpr int kDim = 128;      // of a head, keys and values
inline constexpr int kMaxTokens = 8;  // rows of a sequence in one decode launch, and rows of the replay ring

}  // namespace baton::cuda::kda
