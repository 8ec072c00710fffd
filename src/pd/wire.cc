#include "pd/wire.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/little_endian.h"

namespace baton::pd {
namespace {

constexpr std::array<char, 4> kMagic = {'B', 't', 'P', 'd'};
constexpr int64_t kMostEntries = int64_t{1} << 20;  // of a list that is not of tokens
static_assert(kMostTokens / 64 <= kMostEntries);

class Writer {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void operator()(T value) {
    put_little_endian(value, [this](uint8_t byte) { bytes.push_back(static_cast<std::byte>(byte)); });
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    (*this)(static_cast<uint32_t>(list.size()));
    for (const T& entry : list) (*this)(entry);
  }
  void operator()(const Tokens& tokens) { tokens == nullptr ? (*this)(uint32_t{0}) : (*this)(*tokens); }
  void operator()(const Outcome& outcome) { (*this)(static_cast<uint8_t>(outcome)); }

  std::vector<std::byte> bytes;
};

// Reads until something is wrong; then everything is zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_integral_v<T>
  void operator()(T& value) {
    using Number = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    if (bytes_.size() < sizeof(Number)) return fail("it ends too early");
    const auto number = from_little_endian<Number>(bytes_.data());
    bytes_ = bytes_.subspan(sizeof(Number));
    if constexpr (std::is_same_v<T, bool>) {
      if (number > 1) return fail("a flag is neither 0 nor 1");
      value = number != 0;
    } else {
      value = number;
      if constexpr (std::is_same_v<T, int32_t>)  // counts, ids and tokens
        if (value < 0) return fail("a number that counts something is negative");
    }
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    read_list(list, kMostEntries);
  }
  void operator()(Tokens& tokens) {
    std::vector<int32_t> list;
    read_list(list, kMostTokens);
    tokens = std::make_shared<const std::vector<int32_t>>(std::move(list));
  }
  void operator()(Outcome& outcome) {
    uint8_t value = 0;
    (*this)(value);
    if (value > static_cast<uint8_t>(Outcome::kFailed)) return fail("its outcome is not one");
    outcome = static_cast<Outcome>(value);
  }

  void fail(const char* problem) {
    if (problem_ == nullptr) problem_ = problem;
    bytes_ = {};
  }
  const char* problem() const { return problem_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  template <class T>
  void read_list(std::vector<T>& list, int64_t most) {
    uint32_t count = 0;
    (*this)(count);
    if (int64_t{count} > most || count > bytes_.size() / sizeof(T)) return fail("a list is longer than the message");
    list.resize(count);
    for (T& entry : list) (*this)(entry);
  }

  std::span<const std::byte> bytes_;
  const char* problem_ = nullptr;
};

// The fields of each message, in order; for both directions.
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Order> {
  f(m.ticket), f(m.landing), f(m.salt), f(m.cache), f(m.tokens), f(m.matched_pages), f(m.pages), f(m.slot), f(m.within);
}
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Cancel> ||
    std::is_same_v<std::remove_cvref_t<decltype(m)>, Drained> {
  f(m.ticket), f(m.landing);
}
void fields(auto&, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Ping> {}
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Grant> { f(m.total); }
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, PartLanded> {
  f(m.ticket), f(m.landing), f(m.part), f(m.range.first_page), f(m.range.pages), f(m.range.slot);
}
void fields(auto& f, auto& m) requires std::is_same_v<std::remove_cvref_t<decltype(m)>, Answer> {
  f(m.ticket), f(m.landing), f(m.outcome), f(m.reused_pages), f(m.checksums);
}
void head(auto& f, auto& e) { f(e.from.instance), f(e.from.epoch), f(e.to.instance), f(e.to.epoch), f(e.low_water); }

// A message of the kind that has this number in Body.
template <size_t kKind = 0>
bool make(size_t kind, Body& body) {
  if constexpr (kKind < std::variant_size_v<Body>) {
    if (kind != kKind) return make<kKind + 1>(kind, body);
    body.emplace<kKind>();
    return true;
  }
  return false;
}

Error no_message(const std::string& why) { return {Error::Kind::kInvalid, "what came is no message of the hand-over: " + why}; }

}  // namespace

std::vector<std::byte> encode(const Envelope& e) {
  Writer w;
  for (const char c : kMagic) w.bytes.push_back(static_cast<std::byte>(c));
  w(kWireVersion);
  w(static_cast<uint8_t>(e.body.index()));
  head(w, e);
  std::visit([&w](const auto& body) { fields(w, body); }, e.body);
  return std::move(w.bytes);
}

Result<Envelope> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return no_message("it does not begin like one");
  Reader r(bytes.subspan(kMagic.size()));
  uint8_t version = 0, kind = 0;
  r(version);
  r(kind);
  if (r.problem() == nullptr && version != kWireVersion)
    return no_message(fmt::format("its version is {} and this program's {}; run the same one on all instances", version, kWireVersion));
  Envelope e;
  if (r.problem() == nullptr && !make(kind, e.body)) return no_message(fmt::format("there is no kind {}", kind));
  head(r, e);
  std::visit([&r](auto& body) { fields(r, body); }, e.body);
  if (r.problem() == nullptr && !r.at_end()) r.fail("something is behind its end");
  if (r.problem() != nullptr) return no_message(r.problem());
  return e;
}

}  // namespace baton::pd
