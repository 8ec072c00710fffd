// Any bytes as what instances say to each other: refused, or what they mean; and whatever that is, the table of peers stays within its
// bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fleet/message.h"
#include "fleet/peers.h"

using namespace baton::fleet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Peers prefill({2, 1}), decode({1, 1});
  decode.list("http://p", true, 0);
  decode.calls(0);
  if (const auto m = read_meeting(bytes); m.ok()) {
    if (encode(*m) != bytes) std::abort();
    prefill.introduced(m->from, m->url, 0);
    prefill.introduced({m->from.instance, m->from.epoch + 1}, m->url, 1);
  } else if (m.error().message.empty()) {
    std::abort();
  }
  if (const auto b = read_batch(bytes); b.ok()) {
    if (encode(*b) != bytes || b->messages.size() > kMostMessages) std::abort();
    prefill.introduced(b->from, "http://d", 2);
    for (const auto message : b->messages) prefill.queue(b->to, message);
    prefill.calls(3);
  }
  if (const auto r = read_reply(bytes); r.ok()) {
    if (encode(*r) != bytes) std::abort();
    decode.answered(1, *r, 4);
    decode.calls(5 + kBeat);
    decode.answered(1, {.self = {2, 1}, .known = true, .ready = true}, 6 + kBeat);
    decode.take_gone();
  }
  if (prefill.all().size() > kMostPeers || decode.all().size() > kMostPeers) std::abort();
  return 0;
}
