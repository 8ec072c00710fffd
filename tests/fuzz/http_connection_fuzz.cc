// Any bytes into a connection of a real listener, whose handler answers, streams, or forgets by the path: what comes back begins as an HTTP
// answer, and nothing of the connection is left. The first byte chooses how the bytes are cut.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "http/listener.h"
#include "http/raw_peer.h"

using namespace baton::http;  // NOLINT(google-build-using-namespace)

namespace {

void answer(const std::shared_ptr<Exchange>& exchange) {
  const Request& r = exchange->request();
  switch (r.path.size() % 4) {
    case 0: return;
    case 1: return exchange->respond({.headers = r.headers, .body = r.body});
    case 2: return exchange->respond({.status = r.body.empty() ? 204 : 200, .content_type = r.query});
    default: {
      const auto stream = exchange->stream({.headers = r.headers});
      stream->write(r.body);
      stream->write(r.path);
      stream->end();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Listener> listener = [] {
    auto started = Listener::start({.limits = {.header_bytes = 500, .body_bytes = 1000, .stream_bytes = 1000}}, answer);
    if (!started.ok()) std::abort();
    return std::move(*started);
  }();
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static uint32_t count = 0;
  RawPeer peer(listener->port(), 0, false, 1 + ++count % 0xFFFF00);
  if (!peer.connected()) return 0;
  const size_t piece = data[0] == 0 ? text.size() : 1 + data[0];
  for (int sends = 0; !text.empty(); ++sends) {
    const std::string_view part = text.substr(0, sends < 8 ? piece : text.size());
    if (!peer.send(part)) break;
    text.remove_prefix(part.size());
  }
  peer.end_sending();
  const std::string got = peer.read_to_end();
  if (peer.end() == RawPeer::End::kOpen) {
    const Counters c = listener->counters();
    std::fprintf(stderr, "not closed: %ld accepted, %ld open, %ld requests, %ld answered\n", c.connections_accepted, c.connections_open,
                 c.requests, c.answers[2]);
    std::abort();
  }
  if (!got.empty() && !std::string("HTTP/1.1 ").starts_with(got.substr(0, 9))) std::abort();
  if (!eventually([] { return listener->counters().connections_open == 0; })) std::abort();
  const Counters counters = listener->counters();
  if (counters.requests_open != 0 || counters.streams_open != 0) std::abort();
  return 0;
}
