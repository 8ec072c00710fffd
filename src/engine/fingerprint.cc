#include "engine/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace baton::engine {

uint64_t fingerprint(const model::Checkpoint& checkpoint, const model::CacheTypes& types, const model::CacheLayout& layout) {
  constexpr int64_t kSample = 64;
  std::string all = fmt::format("{} {} {} {} {}", static_cast<int>(types.activation), static_cast<int>(types.state),
                                static_cast<int>(types.latent), static_cast<int>(types.index), types.mtp);
  for (const model::CacheRange& r : layout.ranges) {
    const bool crosses = r.kind != model::CacheRange::Kind::kCycle;
    all += fmt::format(" {}:{}", static_cast<int>(r.kind), crosses ? r.bytes : 0);
  }
  for (const model::TensorEntry& t : checkpoint.tensors()) {
    all += fmt::format(" {} {} {}", t.name, static_cast<int>(t.dtype), fmt::join(t.shape, "x"));
    const int64_t sample = std::min(kSample, t.bytes);
    for (const int64_t at : {int64_t{0}, (t.bytes - sample) / 2, t.bytes - sample})
      all += std::string_view(reinterpret_cast<const char*>(t.data) + at, static_cast<size_t>(sample));
  }
  return XXH3_64bits(all.data(), all.size());
}

}  // namespace baton::engine
