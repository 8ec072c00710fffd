// Any bytes as what a client sends, and as what a server answers: however they are cut, the messages are the same, within their limits,
// and nothing in them can begin another line. Only when a broken one is found out may depend on how it is cut: the parser waits for the end
// of a head that it has begun to look for. The first two bytes choose how they are cut.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "http/request_reader.h"
#include "http/response_reader.h"

using namespace baton::http;  // NOLINT(google-build-using-namespace)

namespace {

const Limits kLimits{.header_bytes = 400, .body_bytes = 300};

std::vector<std::string_view> cut(std::string_view text, std::mt19937& random, unsigned longest) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t n = std::min<size_t>(text.size(), 1 + random() % longest);
    pieces.push_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return pieces;
}

void check(const Request& r) {
  constexpr std::string_view kLineEnds("\r\n\0", 3);
  if (r.body.size() > kLimits.body_bytes) std::abort();
  if (!r.path.starts_with('/') && r.path != "*") std::abort();
  if (r.method.empty() || (r.method + r.path + r.query).find_first_of(" \r\n") != std::string::npos) std::abort();
  size_t head = r.method.size() + r.path.size() + r.query.size();
  for (const auto& [name, value] : r.headers) {
    if (name.empty() || (name + value).find_first_of(kLineEnds) != std::string::npos) std::abort();
    head += name.size() + value.size();
  }
  if (head > kLimits.header_bytes) std::abort();
}

std::string requests_of(const std::vector<std::string_view>& pieces) {
  RequestReader reader(kLimits);
  std::string out;
  for (std::string_view piece : pieces)
    while (!piece.empty() && reader.state() != RequestReader::State::kRefused) {
      const size_t used = reader.feed(piece);
      if (used > piece.size()) std::abort();
      piece.remove_prefix(used);
      if (reader.state() == RequestReader::State::kBody) out += reader.expects_continue() && reader.http_1_0() ? "never" : "";
      if (reader.state() != RequestReader::State::kComplete) continue;
      out += fmt::format("{}{} ", reader.keep_alive(), reader.head_only());
      const Request r = reader.take();
      check(r);
      out += fmt::format("{} {} {} [{}]\n", r.method, r.path, r.query, r.body);
      for (const auto& [name, value] : r.headers) out += fmt::format("{}: {}\n", name, value);
    }
  if (reader.state() == RequestReader::State::kRefused && (reader.refusal().message.empty() || reader.refusal().status < 400)) std::abort();
  return out;
}

std::string answer_of(const std::vector<std::string_view>& pieces) {
  ResponseReader reader(false, 400);
  std::string body;
  for (const std::string_view piece : pieces) reader.feed(piece, [&](std::string_view bytes) { body += bytes; });
  reader.end_of_input();
  if (reader.state() == ResponseReader::State::kFailed) {
    if (reader.problem().empty()) std::abort();
    return "failed";
  }
  if (reader.state() != ResponseReader::State::kComplete) std::abort();
  return fmt::format("{} {} {} [{}]", reader.status(), reader.headers().size(), reader.reusable(), body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::mt19937 random(data[0]);
  const unsigned longest = 1U + data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<std::string_view> whole = {text};
  const std::string requests = requests_of(whole);
  if (requests_of(cut(text, random, 1)) != requests || requests_of(cut(text, random, longest)) != requests) std::abort();
  const std::string answer = answer_of(whole);
  if (answer_of(cut(text, random, 1)) != answer || answer_of(cut(text, random, longest)) != answer) std::abort();
  return 0;
}
