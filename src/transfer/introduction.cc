#include "transfer/introduction.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/little_endian.h"
#include "transfer/remote.h"
#include "transfer/route.h"

namespace baton::transfer {
namespace {

constexpr std::array<char, 4> kMagic = {'B', 't', 'I', 'n'};
constexpr size_t kSumBytes = 8;
constexpr uint32_t kMostRuns = 1 << 14;

Error no_introduction(const std::string& why) { return {Error::Kind::kInvalid, "what came is no introduction of an instance: " + why}; }

uint64_t sum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

class Writer {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void operator()(T value) {
    put_little_endian(value, [this](uint8_t byte) { bytes.push_back(static_cast<std::byte>(byte)); });
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    (*this)(static_cast<uint32_t>(list.size()));
    for (const T& entry : list) fields(*this, entry);
  }
  void operator()(std::byte* const& address) { (*this)(reinterpret_cast<uint64_t>(address)); }

  std::vector<std::byte> bytes;
};

// Reads until something is wrong; then everything is zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_integral_v<T>
  void operator()(T& value) {
    if (bytes_.size() < sizeof(T)) return fail();
    value = from_little_endian<T>(bytes_.data());
    bytes_ = bytes_.subspan(sizeof(T));
  }
  void operator()(std::string& text) {
    const uint32_t size = count(64);
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
  }
  void operator()(std::vector<std::byte>& list) {
    const uint32_t size = count(kMostIntroductionBytes);
    list.assign(bytes_.begin(), bytes_.begin() + size);
    bytes_ = bytes_.subspan(size);
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    list.resize(count(kMostRuns));
    for (T& entry : list) fields(*this, entry);
  }
  void operator()(std::byte*& address) {
    uint64_t value = 0;
    (*this)(value);
    address = reinterpret_cast<std::byte*>(value);
  }
  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  uint32_t count(int64_t most) {
    uint32_t size = 0;
    (*this)(size);
    if (size <= bytes_.size() && int64_t{size} <= most) return size;
    fail();
    return 0;
  }
  void fail() {
    failed_ = true;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

// In order, for both directions.
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, std::byte> { f.bytes.push_back(m); }
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Region> {
  f(m.data), f(m.object_bytes), f(m.objects);
}
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Run> {
  f(m.array), f(m.first), f(m.bytes), f(m.offset);
}
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, SlotRun> { fields(f, m.run), f(m.part); }
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Introduction> {
  f(m.transport), f(m.agent.instance), f(m.agent.epoch), f(m.memory.fingerprint), f(m.device), f(m.doormat);
  fields(f, m.memory.pages), fields(f, m.memory.slots), f(m.memory.page_runs), f(m.memory.slot_runs), f(m.address);
}

bool holds(const Region& region) {
  if (region.object_bytes < 0 || region.objects < 0) return false;
  if (region.objects == 0) return true;
  // No address of a user's process has its highest bit set, so that nothing below overflows.
  const auto start = reinterpret_cast<uint64_t>(region.data);
  constexpr uint64_t kMost = uint64_t{1} << 62;
  return start != 0 && start < kMost && region.object_bytes > 0 &&
         static_cast<uint64_t>(region.object_bytes) < kMost / static_cast<uint64_t>(region.objects);
}
bool lies_in(const Run& run, const Region& region) {
  constexpr int64_t kMost = int64_t{1} << 62;
  return run.bytes > 0 && run.first >= 0 && run.first < kMost && run.bytes < kMost && run.offset >= 0 && run.offset < kMost &&
         run.offset + run.bytes <= region.object_bytes;
}

const char* problem_of(const Introduction& i) {
  const Memory& m = i.memory;
  if (!holds(m.pages) || !holds(m.slots)) return "its memory cannot be";
  if (!std::ranges::all_of(m.page_runs, [&m](const Run& r) { return lies_in(r, m.pages); }) ||
      !std::ranges::all_of(m.slot_runs, [&m](const SlotRun& r) { return lies_in(r.run, m.slots); }))
    return "its arrays lie outside its pages or slots";
  if (i.device < -1) return "its device is none";
  return nullptr;
}

}  // namespace

bool Introduction::operator==(const Introduction& other) const { return encode(*this) == encode(other); }

std::vector<std::byte> encode(const Introduction& introduction) {
  Writer w;
  for (const char c : kMagic) w.bytes.push_back(static_cast<std::byte>(c));
  w(kIntroductionVersion);
  fields(w, introduction);
  w(sum_of(w.bytes));
  return std::move(w.bytes);
}

Result<Introduction> decode_introduction(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return no_introduction("it does not begin like one");
  if (std::ssize(bytes) > kMostIntroductionBytes)
    return no_introduction(fmt::format("it has {} bytes, and at most {} are read", bytes.size(), kMostIntroductionBytes));
  if (bytes.size() < kMagic.size() + 1 + kSumBytes) return no_introduction("it ends too early");
  if (const auto version = static_cast<uint8_t>(bytes[kMagic.size()]); version != kIntroductionVersion)
    return no_introduction(
        fmt::format("its version is {} and this program's {}; run the same one on all instances", version, kIntroductionVersion));
  uint64_t sum = 0;
  Reader(bytes.last(kSumBytes))(sum);
  if (sum != sum_of(bytes.first(bytes.size() - kSumBytes))) return no_introduction("it was damaged on its way, or cut short");
  Reader r(bytes.subspan(kMagic.size() + 1, bytes.size() - kMagic.size() - 1 - kSumBytes));
  Introduction introduction;
  fields(r, introduction);
  if (r.failed()) return no_introduction("a list is longer than it can be");
  if (!r.at_end()) return no_introduction("more stands behind its end");
  if (const char* problem = problem_of(introduction); problem != nullptr) return no_introduction(problem);
  return introduction;
}

Status check_introduction(const Introduction& other, std::string_view transport, Agent self, const Memory& memory) {
  const uint32_t instance = other.agent.instance;
  if (other.transport != transport)
    return Error{Error::Kind::kInvalid,
                 fmt::format("instance {} is reached by the transport \"{}\" and this one by \"{}\"; give all the same --transfer-backend",
                             instance, other.transport, transport)};
  if (instance == self.instance)
    return Error{Error::Kind::kInvalid,
                 fmt::format("two processes call themselves instance {}, or it was introduced to itself; give each instance an address of "
                             "its own",
                             instance)};
  return check_match(self.instance, memory, instance, other.memory);
}

}  // namespace baton::transfer
