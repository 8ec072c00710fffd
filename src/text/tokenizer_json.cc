#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>

#include "text/json_component.h"

namespace baton::text {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMostAddedTokens = 1 << 17;
constexpr size_t kMostAddedBytes = 4096;  // of one token: each is compared at every place where it might begin

Result<AddedToken> read_added_token(const JsonComponent& c) {
  AddedToken t;
  BATON_ASSIGN(t.content, c.text("content"));
  if (t.content.size() > kMostAddedBytes) return c.wrong("content", fmt::format("a text of at most {} bytes", kMostAddedBytes));
  BATON_ASSIGN(t.id, c.token_id("id"));
  BATON_ASSIGN(t.single_word, c.flag("single_word", false));
  BATON_ASSIGN(t.lstrip, c.flag("lstrip", false));
  BATON_ASSIGN(t.rstrip, c.flag("rstrip", false));
  BATON_ASSIGN(t.special, c.flag("special", false));
  BATON_ASSIGN(t.normalized, c.flag("normalized", !t.special));
  return t;
}

// Ids as the reference gives them: those of the vocabulary, else the next free ones in the order of the file. What the file says is only
// compared; files that tools wrote agree.
class AddedTokenReader {
 public:
  explicit AddedTokenReader(TokenizerParts& parts) : parts_(parts), next_id_(static_cast<int32_t>(parts.vocabulary.size())) {}

  Status read(const JsonComponent& root) {
    if (root.find("added_tokens") == nullptr) return {};
    BATON_ASSIGN(const auto* list, root.array("added_tokens"));
    if (list->size() > kMostAddedTokens) return root.wrong("added_tokens", fmt::format("a list of at most {}", kMostAddedTokens));
    for (size_t i = 0; i < list->size(); ++i) {
      BATON_ASSIGN(const JsonComponent c, list_item(*list, i, root.path_to("added_tokens")));
      BATON_ASSIGN(AddedToken token, read_added_token(c));
      if (!token.content.empty()) BATON_TRY(place(std::move(token), c));
    }
    std::stable_partition(parts_.added.begin(), parts_.added.end(), [](const AddedToken& t) { return t.special; });
    return {};
  }

 private:
  Status place(AddedToken token, const JsonComponent& c) {
    const int32_t said = token.id;
    if (const auto known = parts_.vocabulary.find(token.content)) {
      token.id = *known;
    } else {
      token.id = next_id_++;
      if (token.id >= kMostTokenIds) return c.wrong("id", "a smaller vocabulary");
      if (const Status added = parts_.vocabulary.add(token.content, token.id); !added)
        return Error{added.error().kind, fmt::format("{}: {}", c.path(), added.error().message)};
    }
    if (said != token.id)
      parts_.warnings.push_back(fmt::format("{}: '{}' has the id {}, not {} as the file says: ids follow the vocabulary without gaps",
                                            c.path(), token.content, token.id, said));
    token.wanted = token.content;
    if (token.normalized) {
      BATON_ASSIGN(token.wanted, parts_.normalizer.apply(token.content));
      parts_.vocabulary.show_as(token.id, token.wanted);
    }
    const auto [at, added] = index_.try_emplace(token.id, parts_.added.size());
    if (added)
      parts_.added.push_back(std::move(token));
    else
      parts_.added[at->second] = std::move(token);
    return {};
  }

  TokenizerParts& parts_;
  int32_t next_id_;
  std::unordered_map<int32_t, size_t> index_;  // of an id in parts_.added
};

// ByteLevel is the only decoder; Fuse joins what is one text already.
Status read_decoder(const json::value& value, const std::string& path, bool& byte_level) {
  BATON_ASSIGN(const JsonComponent c, JsonComponent::of(value, path));
  BATON_ASSIGN(const std::string type, c.type());
  if (type == "Sequence") {
    BATON_ASSIGN(const auto* list, c.array("decoders"));
    for (size_t i = 0; i < list->size(); ++i)
      BATON_TRY(read_decoder((*list)[i], fmt::format("{}[{}]", c.path_to("decoders"), i), byte_level));
    return {};
  }
  if (type == "ByteLevel" && !byte_level) {
    byte_level = true;
    return {};
  }
  if (type == "Fuse" && byte_level) return {};
  return c.unknown_type("decoder", type, "ByteLevel, with Fuse behind it, and Sequence of these");
}

Result<TokenizerParts> read_parts(const JsonComponent& root) {
  TokenizerParts parts;
  const auto component = [&](std::string_view key) -> const json::value& {
    static const json::value null;
    const json::value* v = root.find(key);
    return v == nullptr ? null : *v;
  };
  BATON_ASSIGN(const JsonComponent model, root.component("model"));
  BATON_ASSIGN(parts.model, BpeModel::from_json(model, parts.vocabulary));
  BATON_ASSIGN(parts.normalizer, Normalizer::from_json(component("normalizer"), "normalizer"));
  BATON_ASSIGN(parts.pretokenizer, PreTokenizer::from_json(component("pre_tokenizer"), "pre_tokenizer"));
  BATON_ASSIGN(parts.post_processor, PostProcessor::from_json(component("post_processor"), "post_processor"));
  BATON_TRY(AddedTokenReader(parts).read(root));

  bool byte_level = false;
  if (component("decoder").is_null())
    parts.joiner = " ";
  else
    BATON_TRY(read_decoder(component("decoder"), "decoder", byte_level));
  if (!byte_level && parts.joiner.empty())
    return Error{Error::Kind::kUnsupported, "decoder: an empty Sequence; only null or ByteLevel is supported"};
  parts.vocabulary.finish(!byte_level);
  return parts;
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view text, const std::string& where) {
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::json::monotonic_resource memory;
  boost::json::error_code error;
  const json::value value = json::parse(text, error, &memory, options);
  if (error) return Error{Error::Kind::kInvalid, fmt::format("{}: no valid JSON: {}", where, error.message())};
  auto parts = JsonComponent::of(value, "");
  if (!parts) return Error{Error::Kind::kInvalid, fmt::format("{}: an object is expected", where)};
  auto result = read_parts(*parts);
  if (!result) return Error{result.error().kind, fmt::format("{}: {}", where, result.error().message)};
  return result;
}

}  // namespace baton::text
