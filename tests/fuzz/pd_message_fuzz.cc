// Any bytes as messages between instances, one behind the other, each after its length: refused, or what they mean, and neither end of the
// hand-over does what it must not, whatever it is told.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "pd/decode_end.h"
#include "pd/prefill_end.h"
#include "pd/wire.h"

namespace {

using namespace baton::pd;
constexpr InstanceId kDecode = 1, kPrefill = 2;

// Orders run to their end as soon as they start, and what is written arrives.
void run(PrefillEnd& end) {
  for (bool again = true; again;) {
    again = false;
    const std::vector<PrefillAction> actions(end.actions().begin(), end.actions().end());
    end.clear_actions();
    for (const PrefillAction& action : actions) {
      if (const auto* start = std::get_if<StartJob>(&action)) {
        const std::vector<int32_t> pages((start->tokens->size() + 63) / 64, 0);
        end.computed(start->job, std::ssize(*start->tokens), 0, pages, 0);
        again = true;
      } else if (const auto* write = std::get_if<Write>(&action)) {
        end.written(write->job, write->notice.part, true, 0);
        again = true;
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  baton::cache::IdPool pages(16), slots(3);
  baton::cache::PrefixTree tree(pages);
  LandingZone zone(pages, slots, tree);
  DecodeEnd decode_end({.self = {kDecode, 1}, .slots = 3, .most_waiting = 4, .remembered_pages = 8}, zone);
  PrefillEnd prefill({.self = {kPrefill, 1}, .credits = 2, .context_tokens = 512});
  decode_end.add_prefill(kPrefill);
  decode_end.receive({{kPrefill, 1}, {kDecode, 1}, 0, Grant{3}}, 0);
  const auto tokens = std::make_shared<const std::vector<int32_t>>(100, 5);
  for (RequestKey key = 1; key <= 3; ++key)
    if (!decode_end.submit(key, {.tokens = tokens}, 0).ok()) std::abort();
  Time now = 1;
  while (input.size() >= 2) {
    const size_t length = std::min<size_t>(static_cast<size_t>(input[0]) | static_cast<size_t>(input[1]) << 8U, input.size() - 2);
    const auto bytes = input.subspan(2, length);
    input = input.subspan(2 + length);
    const auto message = decode(bytes);
    if (!message.ok()) {
      if (message.error().message.empty()) std::abort();
      continue;
    }
    if (!std::ranges::equal(encode(*message), bytes)) std::abort();
    prefill.receive(*message, now);
    run(prefill);
    prefill.advance(now);
    prefill.check_invariants();
    decode_end.receive(*message, now);
    decode_end.advance(++now, 0, true);
    for (const DecodeAction& action : std::vector<DecodeAction>(decode_end.actions().begin(), decode_end.actions().end()))
      if (const auto* verify = std::get_if<Verify>(&action))
        decode_end.verified(verify->ticket, verify->landing, std::vector<uint64_t>(verify->parts.size(), 0), now);
    decode_end.check_invariants();
    decode_end.clear_actions();
  }
  return 0;
}
