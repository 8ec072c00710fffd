#include "server/launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/server.h"

namespace baton::server {
namespace {

void add(api::Usage& to, const api::Usage& more) {
  to.prompt += more.prompt;
  to.completion += more.completion;
  to.reasoning += more.reasoning;
  to.cached += more.cached;
  if (more.drafted) {
    to.drafted = to.drafted.value_or(0) + *more.drafted;
    to.accepted = to.accepted.value_or(0) + more.accepted.value_or(0);
  }
  if (!more.timing) return;
  // Prompts run side by side: the longest of each.
  const api::Timing longest = to.timing.value_or(api::Timing{});
  to.timing = {.queue_s = std::max(longest.queue_s, more.timing->queue_s),
               .prefill_s = std::max(longest.prefill_s, more.timing->prefill_s),
               .decode_s = std::max(longest.decode_s, more.timing->decode_s)};
}

int64_t bytes_of(const std::vector<api::TokenLogprobs>& logprobs) {
  size_t bytes = logprobs.size() * sizeof(api::TokenLogprobs);
  for (const api::TokenLogprobs& l : logprobs) bytes += l.top.size() * sizeof(api::TokenLogprob);
  return static_cast<int64_t>(bytes);
}

}  // namespace

void StreamedAnswer::begin() {
  const std::lock_guard lock(opening_);
  if (opened_) return;
  opened_ = true;
  stream_ = call_->stream();
  write_beginning();
  flush();
}

void StreamedAnswer::flush() {
  if (out_.empty() || stream_ == nullptr) return;
  metrics_.chunks.fetch_add(1, std::memory_order_relaxed);
  stream_->write(out_);  // a client that is gone is told to the call, which cancels
  out_.clear();
}

void StreamedAnswer::on_pause() { flush(); }

void StreamedAnswer::on_end(const api::ApiError* error, const api::Usage& usage) {
  if (closed_) return;
  add(usage_, usage);
  call_->used(usage_);
  if (error == nullptr && --prompts_ > 0) return;
  closed_ = true;
  if (error != nullptr) {
    const std::unique_lock lock(opening_);
    if (!opened_) {
      opened_ = true;
      return call_->fail(*error);
    }
  }
  open();
  if (error != nullptr) {
    call_->failed(*error);
    write_error(*error);
  } else {
    write_end(usage_);
  }
  flush();
  stream_->end();
}

bool WholeAnswer::take(int64_t bytes) {
  if (closed_) return false;
  if (share_->add(bytes)) return true;
  closed_ = true;
  choices_ = {};
  prompt_logprobs_ = {};
  call_->fail(api::ApiError::overloaded(
      "Answers that are kept until they are complete take as much memory as they may; ask for a stream, or for fewer choices or "
      "log-probabilities."));
  call_->cancel();
  return false;
}

void WholeAnswer::on_prompt(int32_t first_choice, std::vector<api::TokenLogprobs> logprobs) {
  if (!take(bytes_of(logprobs))) return;
  prompt_logprobs_[static_cast<size_t>(first_choice)] = std::move(logprobs);
}

void WholeAnswer::on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) {
  int64_t bytes = bytes_of(news.logprobs);
  for (const text::OutputEvent& e : news.events) bytes += static_cast<int64_t>(e.text.size());
  if (take(bytes)) keep(choice, news, usage);
}

void WholeAnswer::keep(int32_t index, ChoiceNews& news, const api::Usage&) {
  api::Choice& choice = choices_[static_cast<size_t>(index)];
  for (const text::OutputEvent& e : news.events) choice.message.add(e);
  for (api::TokenLogprobs& l : news.logprobs) choice.logprobs.push_back(std::move(l));
  if (news.finish) choice.finish = std::move(*news.finish);
}

void WholeAnswer::on_end(const api::ApiError* error, const api::Usage& usage) {
  if (closed_) return;
  add(usage_, usage);
  call_->used(usage_);
  if (error == nullptr && --prompts_ > 0) return;
  if (error != nullptr) {
    closed_ = true;
    return call_->fail(*error);
  }
  std::string whole = body(usage_);
  if (take(static_cast<int64_t>(whole.size()))) call_->respond(200, std::move(whole), "application/json", std::move(share_));
  closed_ = true;
}

void launch(Server& server, const std::shared_ptr<Call>& call, Prepared prepared, std::shared_ptr<Answer> answer) {
  std::vector<Prepared> one;
  one.push_back(std::move(prepared));
  launch(server, call, std::move(one), std::move(answer));
}

void launch(Server& server, const std::shared_ptr<Call>& call, std::vector<Prepared> prepared, std::shared_ptr<Answer> answer) {
  bool waits = false;
  for (const Prepared& p : prepared) waits = waits || p.grammar.has_value();
  const auto go = [&server, call, all = std::make_shared<std::vector<Prepared>>(std::move(prepared)), answer = std::move(answer)] {
    Service& service = server.service();
    if (call->gone()) return call->fail(api::ApiError::timeout("The client is gone."));
    for (Prepared& p : *all)
      if (auto error = service.form(p)) return refuse(server, *call, *error);
    const auto started = service.start(std::move(*all), answer);
    if (!started.ok()) {
      call->retry_after_s = service.retry_after_s();
      return call->fail(started.error());
    }
    for (const auto& generation : *started) call->own(generation);
    answer->begin();
  };
  if (waits)
    server.form(call, go);
  else
    go();
}

void refuse(Server& server, Call& call, const api::ApiError& error) {
  server.metrics().refused.add(error.status == 503 ? Refused::kBusy : Refused::kInvalid);
  call.fail(error);
}

api::AnswerHead answer_head(const Server& server, const Call& call, std::string_view prefix, const std::string& model) {
  api::AnswerHead head;
  head.id = std::string(prefix) + call.number();
  head.created = call.created();
  head.model = model.empty() ? server.service().model().name() : model;
  head.fingerprint = "baton-" + server.options().version;
  head.reasoning_field = server.settings().reasoning_field;
  return head;
}

}  // namespace baton::server
