#include "transfer/nixl_notice.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace baton::transfer {
namespace {

constexpr std::array<char, 4> kMagic = {'B', 't', 'N', 'o'};
constexpr uint8_t kVersion = 1, kGreeting = 0, kPart = 1;

// As it travels, between machines of one byte order.
struct Head {
  std::array<char, 4> magic = kMagic;
  uint8_t version = kVersion;
  uint8_t kind = kPart;
  uint16_t unused = 0;
  uint32_t instance = 0;
  uint32_t unused_too = 0;
  uint64_t epoch = 0;
  uint64_t checksum = 0;
};
static_assert(std::has_unique_object_representations_v<Head>);

}  // namespace

std::vector<std::byte> encode(const NixlNotice& n) {
  const Head head{.kind = n.greeting ? kGreeting : kPart, .instance = n.from.instance, .epoch = n.from.epoch, .checksum = n.checksum};
  std::vector<std::byte> bytes(sizeof head + n.bytes.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::ranges::copy(n.bytes, bytes.begin() + sizeof head);
  return bytes;
}

std::optional<NixlNotice> decode_nixl_notice(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof head || std::ssize(bytes) > static_cast<int64_t>(sizeof head) + kMostNoticeBytes) return {};
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic || head.version != kVersion || head.kind > kPart) return {};
  return NixlNotice{{head.instance, head.epoch}, head.kind == kGreeting, head.checksum, bytes.subspan(sizeof head)};
}

}  // namespace baton::transfer
