#include "text/vocabulary.h"

#include <fmt/format.h>

#include "text/byte_level.h"

namespace baton::text {

Status Vocabulary::add(std::string_view token, int32_t id) {
  if (token.empty()) return Error{Error::Kind::kInvalid, fmt::format("the token with id {} is empty", id)};
  if (has(id)) return Error{Error::Kind::kInvalid, fmt::format("the tokens '{}' and '{}' share the id {}", this->token(id), token, id)};
  const auto [at, added] = ids_.try_emplace(std::string(token), id);
  if (!added) return Error{Error::Kind::kInvalid, fmt::format("the token '{}' has the ids {} and {}", token, at->second, id)};
  if (id >= id_limit()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = at->first;
  return {};
}

void Vocabulary::show_as(int32_t id, std::string token) {
  if (token.empty()) return;  // an empty view means that there is no such id
  tokens_[static_cast<size_t>(id)] = shown_.emplace_back(std::move(token));
}

void Vocabulary::finish(bool raw) {
  bytes_.clear();
  byte_offsets_.assign(1, 0);
  byte_offsets_.reserve(tokens_.size() + 1);
  for (const std::string_view token : tokens_) {
    const auto bytes = raw ? std::nullopt : token_bytes(token);
    // As the reference decodes: one character outside of the alphabet, and the token stands for itself.
    const std::string_view stands_for = bytes ? std::string_view(*bytes) : token;
    bytes_.insert(bytes_.end(), stands_for.begin(), stands_for.end());
    byte_offsets_.push_back(bytes_.size());
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto at = ids_.find(std::string(token));
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

}  // namespace baton::text
