#include "text/detokenizer.h"

#include "text/utf8.h"

namespace baton::text {

void Detokenizer::add(int32_t id, std::string& text) {
  if (!tokenizer_->has(id) || (skip_special_ && tokenizer_->is_special(id))) return;
  if (!first_) pending_ += tokenizer_->joiner();
  first_ = false;
  pending_ += tokenizer_->bytes(id);
  const size_t whole = pending_.size() - incomplete_tail(pending_);
  append_lossy(text, std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
}

void Detokenizer::finish(std::string& text) {
  append_lossy(text, pending_);
  pending_.clear();
  first_ = true;
}

}  // namespace baton::text
