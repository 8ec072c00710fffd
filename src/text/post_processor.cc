#include "text/post_processor.h"

#include <fmt/format.h>

#include "text/json_component.h"

namespace baton::text {
namespace {

constexpr size_t kMostIds = 4096;

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const boost::json::value& value, const std::string& path) {
  PostProcessor p;
  if (!value.is_null()) BATON_TRY(p.add(value, path));
  return p;
}

Status PostProcessor::add(const boost::json::value& value, const std::string& path) {
  BATON_ASSIGN(const JsonComponent c, JsonComponent::of(value, path));
  BATON_ASSIGN(const std::string type, c.type());
  if (prefix.size() + suffix.size() > kMostIds) return Error{Error::Kind::kInvalid, fmt::format("{}: more than {} ids", path, kMostIds)};
  if (type == "Sequence") {
    BATON_ASSIGN(const auto* list, c.array("processors"));
    for (size_t i = 0; i < list->size(); ++i) BATON_TRY(add((*list)[i], fmt::format("{}[{}]", c.path_to("processors"), i)));
    return {};
  }
  if (type == "ByteLevel") return {};  // trims offsets only
  if (type == "TemplateProcessing") return add_template(c);
  if (type == "BertProcessing" || type == "RobertaProcessing") return add_pair(c);
  return c.unknown_type("post-processor", type, "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence of these");
}

Status PostProcessor::add_template(const JsonComponent& c) {
  BATON_ASSIGN(const auto* single, c.array("single"));
  std::vector<int32_t> before, after;
  bool sequence_seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    BATON_ASSIGN(const JsonComponent piece, list_item(*single, i, c.path_to("single")));
    if (piece.find("Sequence") != nullptr) {
      BATON_ASSIGN(const JsonComponent sequence, piece.component("Sequence"));
      BATON_ASSIGN(const std::string name, sequence.text("id"));
      if (name != "A" || sequence_seen) return sequence.wrong("id", "A, once,");
      sequence_seen = true;
      continue;
    }
    BATON_ASSIGN(const JsonComponent special, piece.component("SpecialToken"));
    BATON_ASSIGN(const std::string name, special.text("id"));
    BATON_ASSIGN(const JsonComponent tokens, c.component("special_tokens"));
    BATON_ASSIGN(const JsonComponent token, tokens.component(name));
    BATON_ASSIGN(const auto* ids, token.array("ids"));
    std::vector<int32_t>& out = sequence_seen ? after : before;
    if (out.size() + ids->size() > kMostIds) return token.wrong("ids", "a short list");
    for (const boost::json::value& id : *ids) {
      const int64_t* n = id.if_int64();
      if (n == nullptr || *n < 0 || *n >= kMostTokenIds) return token.wrong("ids", "a list of token ids");
      out.push_back(static_cast<int32_t>(*n));
    }
  }
  if (!sequence_seen) return c.wrong("single", "a template with the sequence A");
  // A later processor wraps what an earlier one made.
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  return {};
}

// Bert and Roberta: "cls" in front, "sep" behind, each a pair of token and id.
Status PostProcessor::add_pair(const JsonComponent& c) {
  const auto id_of = [&](std::string_view key) -> Result<int32_t> {
    BATON_ASSIGN(const auto* pair, c.array(key));
    const int64_t* id = pair->size() == 2 ? (*pair)[1].if_int64() : nullptr;
    if (id == nullptr || *id < 0 || *id >= kMostTokenIds) return c.wrong(key, "a pair of token and id");
    return static_cast<int32_t>(*id);
  };
  BATON_ASSIGN(const int32_t front, id_of("cls"));
  BATON_ASSIGN(const int32_t back, id_of("sep"));
  prefix.insert(prefix.begin(), front);
  suffix.push_back(back);
  return {};
}

}  // namespace baton::text
