#include "fleet/message.h"

#include <fmt/format.h>

#include <type_traits>

#include "base/little_endian.h"

namespace baton::fleet {
namespace {

constexpr std::string_view kMagic = "BtFl";
constexpr uint8_t kVersion = 1;
enum Kind : uint8_t { kMeeting = 1, kBatch = 2, kReply = 3 };

class Writer {
 public:
  explicit Writer(Kind kind) : out(kMagic) {
    (*this)(kVersion);
    (*this)(static_cast<uint8_t>(kind));
  }
  template <class T>
  requires std::is_unsigned_v<T>
  void operator()(T value) {
    put_little_endian(value, [this](uint8_t byte) { out += static_cast<char>(byte); });
  }
  void operator()(const pd::Process& p) { (*this)(p.instance), (*this)(p.epoch); }
  void operator()(std::string_view bytes) {
    (*this)(static_cast<uint32_t>(bytes.size()));
    out += bytes;
  }
  std::string out;
};

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// Reads until something is wrong.
class Reader {
 public:
  Reader(std::string_view bytes, Kind kind) : left_(bytes) { head(kind); }
  template <class T>
  requires std::is_unsigned_v<T>
  void operator()(T& value) {
    if (left_.size() < sizeof(T)) return fail("it ends too early");
    using Number = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const auto number = from_little_endian<Number>(left_.data());
    left_.remove_prefix(sizeof(T));
    if (std::is_same_v<T, bool> && number > 1) return fail("a flag is neither 0 nor 1");
    value = static_cast<T>(number);
  }
  void operator()(pd::Process& p) {
    (*this)(p.instance), (*this)(p.epoch);
    if (problem_.empty() && p.epoch == 0) fail("a process of it is none");
  }
  void operator()(std::string_view& bytes) {
    uint32_t length = 0;
    (*this)(length);
    if (length > left_.size()) return fail("a part of it is longer than the whole");
    bytes = left_.substr(0, length);
    left_.remove_prefix(length);
  }
  void fail(std::string why) {
    if (problem_.empty()) problem_ = std::move(why);
    left_ = {};
  }
  Status end() {
    if (!left_.empty()) fail("something is behind its end");
    if (problem_.empty()) return {};
    return Error{Error::Kind::kInvalid, "this is no message between instances: " + problem_};
  }
  bool ok() const { return problem_.empty(); }

 private:
  void head(Kind kind) {
    if (!left_.starts_with(kMagic)) return fail("it does not begin like one");
    left_.remove_prefix(kMagic.size());
    uint8_t version = 0, is = 0;
    (*this)(version), (*this)(is);
    if (!ok()) return;
    if (version != kVersion)
      return fail(fmt::format("its version is {} and this program's {}; run the same one on all instances", version, kVersion));
    if (is != kind) fail("it is one of another kind");
  }

  std::string_view left_;
  std::string problem_;
};

}  // namespace

std::string encode(const Meeting& m) {
  Writer w(kMeeting);
  w(m.from), w(std::string_view(m.url)), w(m.port), w(m.tls), w(text_of(m.introduction));
  return std::move(w.out);
}

std::string encode(const Batch& b) {
  Writer w(kBatch);
  w(b.from), w(b.to), w(static_cast<uint32_t>(b.messages.size()));
  for (const std::span<const std::byte> m : b.messages) w(text_of(m));
  return std::move(w.out);
}

std::string encode(const Reply& r) {
  Writer w(kReply);
  w(r.self), w(r.known), w(r.ready);
  return std::move(w.out);
}

Result<Meeting> read_meeting(std::string_view bytes) {
  Reader r(bytes, kMeeting);
  Meeting m;
  std::string_view url, introduction;
  r(m.from), r(url), r(m.port), r(m.tls), r(introduction);
  if (url.size() > kMostUrlBytes) r.fail("its URL is too long");
  if (r.ok() && url.empty() && m.port == 0) r.fail("it does not say where its sender is called");
  BATON_TRY(r.end());
  m.url = url;
  const auto whole = bytes_of(introduction);
  m.introduction.assign(whole.begin(), whole.end());
  return m;
}

Result<Batch> read_batch(std::string_view bytes) {
  Reader r(bytes, kBatch);
  Batch b;
  uint32_t count = 0;
  r(b.from), r(b.to), r(count);
  if (count > kMostMessages) r.fail("it holds too many");
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    std::string_view message;
    r(message);
    b.messages.push_back(bytes_of(message));
  }
  BATON_TRY(r.end());
  return b;
}

Result<Reply> read_reply(std::string_view bytes) {
  Reader r(bytes, kReply);
  Reply reply;
  r(reply.self), r(reply.known), r(reply.ready);
  BATON_TRY(r.end());
  return reply;
}

}  // namespace baton::fleet
