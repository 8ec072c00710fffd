#include "transfer/slices.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::transfer {

std::vector<Slice> slices(std::span<const Run> sender, std::span<const Run> receiver) {
  std::vector<Slice> out;
  for (const Run& to : receiver) {
    const size_t before = out.size();
    for (const Run& from : sender) {
      if (from.array != to.array) continue;
      const int64_t first = std::max(from.first, to.first);
      const int64_t end = std::min(from.first + from.bytes, to.first + to.bytes);
      if (first < end) out.push_back({from.offset + first - from.first, to.offset + first - to.first, end - first});
    }
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), [](const Slice& a, const Slice& b) { return a.to < b.to; });
  }
  size_t kept = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Slice* last = kept > 0 ? &out[kept - 1] : nullptr;
    if (last != nullptr && last->from + last->bytes == out[i].from && last->to + last->bytes == out[i].to)
      last->bytes += out[i].bytes;
    else
      out[kept++] = out[i];
  }
  out.resize(kept);
  return out;
}

Status check_cover(std::span<const std::vector<Run>> senders, std::span<const Run> receiver) {
  for (const Run& to : receiver) {
    std::vector<Slice> all;
    for (const std::vector<Run>& sender : senders)
      for (const Slice& s : slices(sender, {&to, 1})) all.push_back(s);
    std::sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) { return a.to < b.to; });
    int64_t next = to.offset;
    for (const Slice& s : all) {
      if (s.to < next)
        return Error{Error::Kind::kInvalid, fmt::format("byte {} of array {} would be sent twice; the senders' layouts overlap",
                                                        to.first + s.to - to.offset, to.array)};
      if (s.to > next) break;
      next = s.to + s.bytes;
    }
    if (next != to.offset + to.bytes)
      return Error{Error::Kind::kInvalid, fmt::format("byte {} of array {} is with no sender; the layouts do not belong to one model",
                                                      to.first + next - to.offset, to.array)};
  }
  return {};
}

}  // namespace baton::transfer
