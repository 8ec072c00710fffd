#include "http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

namespace baton::http {

namespace beast = boost::beast::http;
using BeastError = boost::beast::error_code;

// Fills a Request. What this version of Beast accepts and two servers in a row could read differently is refused in check_head.
class RequestReader::Parser : public beast::basic_parser<true> {
 public:
  Request request;
  int version = 11;
  int transfer_encodings = 0;
  int content_lengths = 0;
  int hosts = 0;
  std::uint64_t chunk_left = 0;
  bool in_body = false;  // fields from here on are trailers, which are dropped: they must not pass for fields of the head

 private:
  void on_request_impl(beast::verb, boost::beast::string_view method, boost::beast::string_view target, int number, BeastError&) override {
    request.method = method;
    request.path = target;
    version = number;
  }
  void on_response_impl(int, boost::beast::string_view, int, BeastError&) override {}  // abstract for requests too
  void on_field_impl(beast::field field, boost::beast::string_view name, boost::beast::string_view value, BeastError&) override {
    if (in_body) return;
    transfer_encodings += field == beast::field::transfer_encoding ? 1 : 0;
    content_lengths += field == beast::field::content_length ? 1 : 0;
    hosts += field == beast::field::host ? 1 : 0;
    request.headers.emplace_back(name, value);
  }
  void on_header_impl(BeastError&) override { in_body = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, BeastError&) override {
    // Only so much on the client's word.
    if (length) request.body.reserve(static_cast<size_t>(std::min<std::uint64_t>(*length, 64 << 10)));
  }
  std::size_t on_body_impl(boost::beast::string_view bytes, BeastError&) override {
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, boost::beast::string_view, BeastError&) override { chunk_left = size; }
  std::size_t on_chunk_body_impl(std::uint64_t, boost::beast::string_view bytes, BeastError& error) override {
    chunk_left -= bytes.size();
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(BeastError&) override {}
};

namespace {

constexpr size_t kLeastLastChunk = 5;  // "0\r\n\r\n"

// Path and query of a target in one of the forms that servers must accept: "/p?q", "http://host/p?q", "*".
bool split_target(Request& request) {
  std::string_view target = request.path;
  if (target == "*") return request.method == "OPTIONS";
  if (!target.starts_with('/')) {
    const size_t scheme = target.find("://");
    if (scheme == std::string_view::npos ||
        !(equal_names(target.substr(0, scheme), "http") || equal_names(target.substr(0, scheme), "https")))
      return false;
    const size_t rest = target.find_first_of("/?", scheme + 3);
    target = rest == std::string_view::npos ? std::string_view() : target.substr(rest);
  }
  const size_t mark = std::min(target.find('?'), target.size());
  std::string path(target.substr(0, mark));
  request.query = target.substr(std::min(mark + 1, target.size()));
  request.path = path.empty() ? "/" : std::move(path);
  return true;
}

}  // namespace

RequestReader::RequestReader(const Limits& limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

void RequestReader::refuse(int status, std::string message) {
  refusal_ = {status, std::move(message)};
  state_ = State::kRefused;
  partial_ = {};
}

size_t RequestReader::feed(std::string_view input) {
  if (state_ == State::kComplete || state_ == State::kRefused || input.empty()) return 0;
  if (partial_.empty()) {
    const size_t used = parse(input);
    if (state_ == State::kHead || state_ == State::kBody) {
      partial_ = input.substr(used);
      return input.size();
    }
    return state_ == State::kEmpty ? input.size() : used;
  }
  const size_t before = partial_.size();
  partial_ += input;
  const size_t used = parse(partial_);
  if (state_ == State::kHead || state_ == State::kBody) {
    partial_.erase(0, used);
    return input.size();
  }
  partial_ = {};
  return used > before ? used - before : 0;
}

size_t RequestReader::parse(std::string_view input) {
  size_t used = 0;
  if (state_ == State::kEmpty) {
    // A line end or a few too many behind the request before are forgiven, as RFC 9112 wants it.
    while (used < input.size() && (input[used] == '\r' || input[used] == '\n')) ++used;
    empty_lines_ += used;
    if (empty_lines_ > 64) refuse(400, "The connection sends empty lines instead of a request.");
    if (used == input.size() || state_ == State::kRefused) return used;
    // The first bytes of a TLS handshake.
    if (input[used] == '\x16') {
      refuse(400, "This port speaks plain HTTP; use http:// instead of https://.");
      return used;
    }
    empty_lines_ = 0;
    framing_bytes_ = 0;
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(static_cast<std::uint32_t>(limits_.header_bytes));
    parser_->body_limit(limits_.body_bytes);
    state_ = State::kHead;
  }
  BeastError error;
  while (used < input.size()) {
    // Beast cannot come back to the last chunk after it has seen less than this of it.
    if (state_ == State::kBody && parser_->chunked() && parser_->chunk_left == 0 && input.size() - used < kLeastLastChunk) return used;
    const size_t body_before = parser_->request.body.size();
    const size_t n = parser_->put(boost::asio::const_buffer(input.data() + used, input.size() - used), error);
    used += n;
    const size_t content = parser_->request.body.size() - body_before;
    framing_bytes_ = content != 0 ? 0 : framing_bytes_ + n;
    if (error && error != beast::error::need_more) break;
    if (framing_bytes_ + (error ? input.size() - used : 0) > limits_.header_bytes) {
      error = state_ == State::kHead ? beast::error::header_limit : beast::error::bad_chunk_extension;
      break;
    }
    if (state_ == State::kHead && parser_->is_header_done()) {
      framing_bytes_ = 0;
      state_ = State::kBody;
      check_head();
      if (state_ == State::kRefused) return used;
    }
    if (parser_->is_done()) {
      state_ = State::kComplete;
      return used;
    }
    if (error) return used;  // the rest is needed again, with more behind it
  }
  if (!error || error == beast::error::need_more) return used;
  if (error == beast::error::header_limit)
    refuse(431, fmt::format("The request line and header fields are longer than {} bytes.", limits_.header_bytes));
  else if (error == beast::error::body_limit)
    refuse(413, fmt::format("The body is longer than {} bytes.", limits_.body_bytes));
  else if (const size_t end = input.substr(used).find('\n');
           state_ == State::kHead && end != std::string_view::npos && (end == 0 || input[used + end - 1] != '\r'))
    refuse(400, "A line of the request's head ends without a carriage return; HTTP's lines end in CR LF.");
  else if (error == beast::error::bad_version)
    refuse(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
  else
    refuse(400, fmt::format("The request is not HTTP: {}.", error.message()));
  return used;
}

void RequestReader::check_head() {
  Request& request = parser_->request;
  const bool old = http_1_0();
  if (request.method == "CONNECT") return refuse(501, "CONNECT is not supported.");
  if (!split_target(request)) return refuse(400, "The request target is neither a path nor an http or https address.");
  if (parser_->hosts > 1 || (parser_->hosts == 0 && !old)) return refuse(400, "An HTTP/1.1 request needs exactly one Host field.");
  // Framing that another server before this one could read differently.
  if (parser_->transfer_encodings > 0) {
    if (old) return refuse(400, "HTTP/1.0 has no Transfer-Encoding.");
    if (parser_->content_lengths > 0) return refuse(400, "Content-Length and Transfer-Encoding exclude each other.");
    if (parser_->transfer_encodings > 1 || !equal_names(request.header("Transfer-Encoding"), "chunked"))
      return refuse(501, "The only Transfer-Encoding supported is chunked.");
  }
  if (const std::string* expect = find_header(request.headers, "Expect"); expect != nullptr && !equal_names(*expect, "100-continue"))
    return refuse(417, "The only expectation supported is 100-continue.");
}

bool RequestReader::expects_continue() const {
  return state_ == State::kBody && !http_1_0() && body_bytes() == 0 && find_header(parser_->request.headers, "Expect") != nullptr;
}
const Request* RequestReader::head() const { return parser_ != nullptr ? &parser_->request : nullptr; }
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::http_1_0() const { return parser_->version < 11; }
bool RequestReader::head_only() const { return parser_->request.method == "HEAD"; }
size_t RequestReader::body_bytes() const { return parser_->request.body.size(); }

Request RequestReader::take() {
  Request request = std::move(parser_->request);
  parser_.reset();
  partial_ = {};
  state_ = State::kEmpty;
  return request;
}

}  // namespace baton::http
