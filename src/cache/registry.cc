#include "cache/registry.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace baton::cache {

void Registry::add(const ByteRange& range) {
  const int64_t size = range.home == Home::kPage ? page_bytes_ : slot_bytes_;
  BATON_CHECK_MSG(range.offset >= 0 && range.bytes > 0 && range.offset + range.bytes <= size, "range {} + {} leaves an object of {} bytes",
                  range.offset, range.bytes, size);
  BATON_CHECK((range.home == Home::kPage) == (range.lifetime == Lifetime::kTokens));
  const auto place = std::upper_bound(ranges_.begin(), ranges_.end(), range, [](const ByteRange& a, const ByteRange& b) {
    return std::tuple(a.home, a.offset) < std::tuple(b.home, b.offset);
  });
  if (place != ranges_.begin()) {
    const ByteRange& before = *std::prev(place);
    BATON_CHECK_MSG(before.home != range.home || before.offset + before.bytes <= range.offset, "ranges at {} and {} overlap", before.offset,
                    range.offset);
  }
  BATON_CHECK_MSG(place == ranges_.end() || place->home != range.home || range.offset + range.bytes <= place->offset,
                  "ranges at {} and {} overlap", range.offset, place->offset);
  ranges_.insert(place, range);

  snapshot_.clear();
  int64_t end = 0;
  for (const ByteRange& r : ranges_) {
    if (r.lifetime != Lifetime::kState) continue;
    if (!snapshot_.empty() && snapshot_.back().slot_offset + snapshot_.back().bytes == r.offset)
      snapshot_.back().bytes += r.bytes;
    else
      snapshot_.push_back({r.offset, end, r.bytes});
    end += r.bytes;
  }
}

int64_t Registry::snapshot_bytes() const {
  constexpr int64_t kAlignment = 256;
  const int64_t end = snapshot_.empty() ? 0 : snapshot_.back().snapshot_offset + snapshot_.back().bytes;
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace baton::cache
