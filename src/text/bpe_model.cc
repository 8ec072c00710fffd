#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr size_t kMostMerges = size_t{1} << 22;
constexpr size_t kMostTokenBytes = 64 << 10;

Status read_vocabulary(const JsonComponent& model, Vocabulary& vocabulary) {
  const boost::json::value* v = model.find("vocab");
  if (v == nullptr || !v->is_object()) return model.wrong("vocab", "an object of tokens and their ids");
  for (const auto& [token, id] : v->get_object()) {
    const int64_t* i = id.if_int64();
    if (i == nullptr || *i < 0 || *i >= kMostTokenIds)
      return model.wrong("vocab",
                         fmt::format("an id from 0 to {} for the token '{}'", kMostTokenIds - 1, std::string_view(token).substr(0, 100)));
    if (token.size() > kMostTokenBytes) return model.wrong("vocab", fmt::format("a token of at most {} bytes", kMostTokenBytes));
    if (const Status added = vocabulary.add(token, static_cast<int32_t>(*i)); !added)
      return Error{added.error().kind, fmt::format("{}: {}", model.path_to("vocab"), added.error().message)};
  }
  return {};
}

// A merge is a pair of strings, or in older files one string with a space between.
bool read_pair(const boost::json::value& merge, std::string_view& left, std::string_view& right) {
  if (merge.is_string()) {
    const std::string_view both = merge.get_string();
    const size_t space = both.find(' ');
    if (space == std::string_view::npos) return false;
    left = both.substr(0, space);
    right = both.substr(space + 1);
    return !left.empty() && !right.empty() && right.find(' ') == std::string_view::npos;
  }
  if (!merge.is_array() || merge.get_array().size() != 2) return false;
  const boost::json::array& pair = merge.get_array();
  if (!pair[0].is_string() || !pair[1].is_string()) return false;
  left = pair[0].get_string();
  right = pair[1].get_string();
  return !left.empty() && !right.empty();
}

// Settings of the model that change ids and that no byte-level tokenizer uses.
Status refuse_unsupported(const JsonComponent& model) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const boost::json::value* v = model.find(key);
    if (v != nullptr && !(v->is_string() && v->get_string().empty()))
      return Error{Error::Kind::kUnsupported, fmt::format("{}: only null is supported", model.path_to(key))};
  }
  const boost::json::value* dropout = model.find("dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->to_number<double>() == 0))
    return Error{Error::Kind::kUnsupported, fmt::format("{}: only null is supported", model.path_to("dropout"))};
  return {};
}

}  // namespace

Result<BpeModel> BpeModel::from_json(const JsonComponent& model, Vocabulary& vocabulary) {
  if (model.find("type") != nullptr) {
    BATON_ASSIGN(const std::string type, model.type());
    if (type != "BPE") return model.unknown_type("model", type, "BPE");
  }
  BATON_TRY(refuse_unsupported(model));
  BATON_TRY(read_vocabulary(model, vocabulary));

  BpeModel m;
  for (size_t b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(character, byte_alphabet()[b]);
    m.byte_ids_[b] = vocabulary.find(character).value_or(-1);
  }
  BATON_TRY(m.read_unknown(model, vocabulary));
  BATON_TRY(m.read_merges(model, vocabulary));
  BATON_ASSIGN(m.ignore_merges_, model.flag("ignore_merges", false));
  if (m.ignore_merges_) {
    for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
      if (!vocabulary.has(id)) continue;
      if (auto bytes = token_bytes(vocabulary.token(id))) {
        m.longest_word_ = std::max(m.longest_word_, bytes->size());
        m.words_.emplace(std::move(*bytes), id);
      }
    }
  }
  return m;
}

Status BpeModel::read_unknown(const JsonComponent& model, const Vocabulary& vocabulary) {
  BATON_ASSIGN(fuse_unknown_, model.flag("fuse_unk", false));
  BATON_ASSIGN(const bool byte_fallback, model.flag("byte_fallback", false));
  const bool complete = std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
  if (byte_fallback && !complete)
    return Error{Error::Kind::kUnsupported,
                 fmt::format("{}: only false is supported where bytes are missing from the vocabulary", model.path_to("byte_fallback"))};
  if (model.find("unk_token") == nullptr) return {};
  BATON_ASSIGN(const std::string unknown, model.text("unk_token"));
  const auto id = vocabulary.find(unknown);
  // With all bytes there, nothing is ever unknown, and older files name a token that only comes with the added ones.
  if (!id && !complete) return model.wrong("unk_token", "a token of the vocabulary");
  unknown_id_ = id.value_or(-1);
  return {};
}

Status BpeModel::read_merges(const JsonComponent& model, const Vocabulary& vocabulary) {
  BATON_ASSIGN(const auto* list, model.array("merges"));
  if (list->size() > kMostMerges) return model.wrong("merges", fmt::format("a list of at most {} merges", kMostMerges));
  merges_ = MergeTable(list->size());
  for (size_t rank = 0; rank < list->size(); ++rank) {
    std::string_view left, right;
    const auto problem = [&](std::string_view what) {
      return Error{Error::Kind::kInvalid, fmt::format("{}[{}]: {}", model.path_to("merges"), rank, what)};
    };
    if (!read_pair((*list)[rank], left, right)) return problem("a pair of tokens is expected");
    const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right);
    if (!left_id || !right_id) return problem(fmt::format("the token '{}' is not in the vocabulary", left_id ? right : left));
    const auto id = vocabulary.find(std::string(left) + std::string(right));
    if (!id) return problem(fmt::format("the merged token '{}{}' is not in the vocabulary", left, right));
    merges_.insert(*left_id, *right_id, {static_cast<uint32_t>(rank), *id});
  }
  return {};
}

void BpeModel::encode(std::string_view word, BpeMerger& merger, std::vector<int32_t>& ids) const {
  ids.clear();
  if (ignore_merges_ && word.size() <= longest_word_) {
    if (const auto at = words_.find(std::string(word)); at != words_.end()) {
      ids.push_back(at->second);
      return;
    }
  }
  ids.reserve(word.size());
  bool unknown_before = false;
  const char* p = word.data();
  const char* const end = p + word.size();
  while (p < end) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(*p++)];
    const bool unknown = id < 0;
    if (!unknown)
      ids.push_back(id);
    else if (unknown_id_ >= 0 && !(fuse_unknown_ && unknown_before))
      ids.push_back(unknown_id_);
    unknown_before = unknown;
  }
  merger.merge(merges_, ids);
}

}  // namespace baton::text
