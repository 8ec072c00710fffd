#include "http/response_reader.h"

#include <fmt/format.h>

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>

namespace baton::http {

namespace beast = boost::beast::http;
using BeastError = boost::beast::error_code;

namespace {
constexpr size_t kLeastLastChunk = 5;  // "0\r\n\r\n"
}

class ResponseReader::Parser : public beast::basic_parser<false> {
 public:
  int status = 0;
  HeaderList headers;
  bool in_body = false;
  size_t content = 0;
  std::uint64_t chunk_left = 0;
  const std::function<void(std::string_view)>* on_body = nullptr;

 private:
  void on_request_impl(beast::verb, boost::beast::string_view, boost::beast::string_view, int, BeastError&) override {}
  void on_response_impl(int code, boost::beast::string_view, int, BeastError&) override { status = code; }
  void on_field_impl(beast::field, boost::beast::string_view name, boost::beast::string_view value, BeastError&) override {
    if (!in_body) headers.emplace_back(name, value);
  }
  void on_header_impl(BeastError&) override { in_body = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, BeastError&) override {}
  std::size_t on_body_impl(boost::beast::string_view bytes, BeastError&) override {
    content += bytes.size();
    if (!bytes.empty()) (*on_body)({bytes.data(), bytes.size()});
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, boost::beast::string_view, BeastError&) override { chunk_left = size; }
  std::size_t on_chunk_body_impl(std::uint64_t, boost::beast::string_view bytes, BeastError& error) override {
    chunk_left -= bytes.size();
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(BeastError&) override {}
};

ResponseReader::ResponseReader(bool without_body, size_t header_bytes) : without_body_(without_body), header_bytes_(header_bytes) {
  restart();
}
ResponseReader::~ResponseReader() = default;

void ResponseReader::restart() {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(static_cast<std::uint32_t>(header_bytes_));
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  parser_->skip(without_body_);
  framing_bytes_ = 0;
  state_ = State::kHead;
}

void ResponseReader::fail(std::string problem) {
  state_ = State::kFailed;
  problem_ = std::move(problem);
}

void ResponseReader::feed(std::string_view input, const std::function<void(std::string_view)>& on_body) {
  if (state_ == State::kComplete || state_ == State::kFailed) {
    extra_ = extra_ || !input.empty();
    return;
  }
  partial_ += input;
  parser_->on_body = &on_body;
  size_t used = 0;
  BeastError error;
  while (used < partial_.size()) {
    // Beast cannot come back to the last chunk after it has seen less than this of it.
    if (state_ == State::kBody && parser_->chunked() && parser_->chunk_left == 0 && partial_.size() - used < kLeastLastChunk) break;
    const size_t content = parser_->content;
    const size_t n = parser_->put(boost::asio::const_buffer(partial_.data() + used, partial_.size() - used), error);
    used += n;
    framing_bytes_ = parser_->content != content ? 0 : framing_bytes_ + n;
    if (error && error != beast::error::need_more) return fail(fmt::format("what came is not an HTTP answer ({})", error.message()));
    if (framing_bytes_ + (error ? partial_.size() - used : 0) > header_bytes_)
      return fail(fmt::format("the head of the answer is longer than {} bytes", header_bytes_));
    if (state_ == State::kHead && parser_->is_header_done()) {
      if (parser_->status / 100 == 1 && parser_->status != 101) {
        restart();
        parser_->on_body = &on_body;
        continue;
      }
      state_ = State::kBody;
      framing_bytes_ = 0;
    }
    if (parser_->is_done()) {
      state_ = State::kComplete;
      extra_ = used < partial_.size();
      break;
    }
    if (error) break;
  }
  partial_.erase(0, used);
}

void ResponseReader::end_of_input() {
  if (state_ == State::kComplete || state_ == State::kFailed) return;
  if (!parser_->got_some()) return fail("the server closed the connection without an answer");
  BeastError error;
  parser_->put_eof(error);
  if (error || !partial_.empty() || state_ == State::kHead)
    return fail(fmt::format("the answer broke off after {} bytes of its body", parser_->content));
  state_ = State::kComplete;
  extra_ = true;  // nothing can follow
}

int ResponseReader::status() const { return parser_->status; }
const HeaderList& ResponseReader::headers() const { return parser_->headers; }
bool ResponseReader::reusable() const { return state_ == State::kComplete && !extra_ && parser_->keep_alive(); }

}  // namespace baton::http
