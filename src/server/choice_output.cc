#include "server/choice_output.h"

#include <algorithm>

#include "base/check.h"

namespace baton::server {

using text::OutputEvent;

void ChoiceNews::clear() {
  events.clear();
  logprobs.clear();
  token_ids.clear();
  finish.reset();
}

ChoiceOutput::ChoiceOutput(const OutputOptions& options)
    : options_(options), detokenizer_(*options.tokenizer, options.skip_special), scanner_(options.stop) {
  if (options.markup != nullptr)
    parser_.emplace(*options.markup, text::OutputParser::Options{.starts_in_reasoning = options.starts_in_reasoning,
                                                                 .tools = options.tools,
                                                                 .tokenizer = options.tokenizer,
                                                                 .skip_special = options.skip_special});
}

bool ChoiceOutput::add(const Token& token) {
  BATON_CHECK(!ended());
  ++tokens_;
  const text::Tokenizer& tokenizer = *options_.tokenizer;
  if (options_.token_ids) news_.token_ids.push_back(token.id);
  if (options_.logprobs) {
    api::TokenLogprobs& entry = news_.logprobs.emplace_back();
    entry.token = {token.id, token.logprob, std::string(tokenizer.bytes(token.id))};
    for (const ops::TokenLogprob& t : token.top) entry.top.push_back({t.token, t.logprob, std::string(tokenizer.bytes(t.token))});
  }
  if (token.stops && (!options_.include_stop || token.ends_form)) {
    if (parser_ && parser_->in_reasoning()) ++reasoning_;
    return false;
  }
  if (scanner_.empty()) {
    show_token(token.id);
    return false;
  }

  const size_t begin = held_begin_ + held_.size();
  const bool marker = parser_ && options_.markup->marker(token.id).has_value();
  piece_.clear();
  if (marker)
    piece_ = tokenizer.bytes(token.id);
  else
    detokenizer_.add(token.id, piece_);
  held_ += piece_;
  waiting_.push_back({marker ? token.id : -1, begin, begin + piece_.size()});
  const auto match = scanner_.add(piece_);
  release(match ? (options_.include_stop ? match->end : match->begin) : scanner_.clear(), match.has_value());
  if (!match) return false;
  for (size_t i = 0; i < waiting_.size(); ++i)
    if (parser_ && parser_->in_reasoning()) ++reasoning_;  // tokens of the stop string itself
  waiting_.clear();
  end_here(text::FinishReason::kStop);
  news_.finish->matched = options_.stop[match->stop];
  return true;
}

void ChoiceOutput::finish(text::FinishReason reason, std::optional<int32_t> stop_token) {
  BATON_CHECK(!ended());
  release(held_begin_ + held_.size(), false);
  if (!parser_ || !scanner_.empty()) {
    piece_.clear();
    detokenizer_.finish(piece_);
    show_text(piece_);
  }
  end_here(reason);
  if (stop_token) news_.finish->matched = *stop_token;
}

void ChoiceOutput::forget_news() {
  ended_ = ended();
  news_.clear();
}

void ChoiceOutput::show_token(int32_t id) {
  if (!parser_) {
    piece_.clear();
    detokenizer_.add(id, piece_);
    show_text(piece_);
    return;
  }
  if (parser_->in_reasoning()) ++reasoning_;
  parsed_.clear();
  parser_->add(id, parsed_);
  for (OutputEvent& e : parsed_) text::append_merged(news_.events, std::move(e));
}

void ChoiceOutput::show_text(std::string_view text) {
  if (text.empty()) return;
  if (!parser_) return text::append_merged(news_.events, {.kind = OutputEvent::Kind::kContent, .text = std::string(text)});
  parsed_.clear();
  parser_->add_text(text, parsed_);
  for (OutputEvent& e : parsed_) text::append_merged(news_.events, std::move(e));
}

std::string_view ChoiceOutput::held_text(size_t begin, size_t end) const {
  return std::string_view(held_).substr(begin - held_begin_, end - begin);
}

// What stands before `end` is passed on. A marker of which a part may belong to a stop string waits; at the last cut it is text.
void ChoiceOutput::release(size_t end, bool last) {
  while (!waiting_.empty()) {
    Held& h = waiting_.front();
    if (h.marker >= 0) {
      if (h.end > end) {
        if (last && end > h.begin) show_text(held_text(h.begin, end));
        break;
      }
      show_token(h.marker);
    } else {
      const size_t until = std::min(h.end, end);
      if (h.end > end && until == h.begin) break;
      if (h.end <= end && parser_ && parser_->in_reasoning()) ++reasoning_;
      show_text(held_text(h.begin, until));
      h.begin = until;
      if (h.end > end) break;
    }
    waiting_.pop_front();
  }
  const size_t kept = waiting_.empty() ? end : std::min(end, waiting_.front().begin);
  held_.erase(0, kept - held_begin_);
  held_begin_ = kept;
}

void ChoiceOutput::end_here(text::FinishReason reason) {
  news_.finish.emplace();
  news_.finish->reason = reason;
  if (!parser_) return;
  parsed_.clear();
  parser_->finish(reason, parsed_);
  for (OutputEvent& e : parsed_) {
    if (e.kind == OutputEvent::Kind::kFinish)
      news_.finish->reason = e.finish;
    else
      text::append_merged(news_.events, std::move(e));
  }
}

}  // namespace baton::server
