#include "text/grammar/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "base/check.h"
#include "text/grammar/schema_grammar.h"
#include "text/grammar/spec_check.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace json = boost::json;

namespace {

// White space between the parts of JSON: enough for indented output, and an end to what a model can waste on it.
constexpr int64_t kMostWhitespace = 40;
constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Added tokens get bytes that no text has, so that no grammar's text spells them. They are not left empty, since the library never allows
// an empty token, also not where a grammar names it by id.
std::string unspellable(int32_t id) {
  std::string bytes = "\xFF";
  for (int shift = 0; shift < 28; shift += 7) bytes += static_cast<char>(0x80 | (id >> shift & 0x7F));
  return bytes;
}

}  // namespace

GrammarVocabulary GrammarVocabulary::of(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids, int32_t columns) {
  GrammarVocabulary result;
  result.tokens.resize(static_cast<size_t>(columns));
  for (int32_t id = 0; id < columns; ++id) {
    if (!tokenizer.has(id)) continue;
    result.tokens[static_cast<size_t>(id)] = tokenizer.is_added(id) ? unspellable(id) : std::string(tokenizer.bytes(id));
  }
  result.stop_ids = std::move(stop_ids);
  return result;
}

Result<std::unique_ptr<GrammarBackend>> GrammarBackend::create(const GrammarVocabulary& vocabulary,
                                                               const std::filesystem::path& library_folder) {
  std::unique_ptr<GrammarBackend> result(new GrammarBackend);
  BATON_ASSIGN(result->ffi_, Ffi::load(library_folder));
  const Ffi& ffi = *result->ffi_;
  Methods& m = result->methods_;
  BATON_ASSIGN(m.schema_to_ebnf, ffi.global("xgrammar.tvm_ffi_binding.testing._json_schema_to_ebnf"));
  BATON_ASSIGN(m.compile_json_schema, ffi.method("GrammarCompiler", "compile_json_schema"));
  BATON_ASSIGN(m.compile_regex, ffi.method("GrammarCompiler", "compile_regex"));
  BATON_ASSIGN(m.compile_ebnf, ffi.method("GrammarCompiler", "compile_grammar_from_strings"));
  BATON_ASSIGN(m.compile_structural_tag, ffi.method("GrammarCompiler", "compile_structural_tag"));
  BATON_ASSIGN(m.memory_size, ffi.method("CompiledGrammar", "memory_size_bytes"));
  BATON_ASSIGN(m.create_matcher, ffi.method("GrammarMatcher", "__ffi_init__"));
  BATON_ASSIGN(m.fill, ffi.method("GrammarMatcher", "fill_next_token_bitmask"));
  BATON_ASSIGN(m.accept, ffi.method("GrammarMatcher", "accept_token"));
  BATON_ASSIGN(m.rollback, ffi.method("GrammarMatcher", "rollback"));
  BATON_ASSIGN(m.fork, ffi.method("GrammarMatcher", "fork"));
  BATON_ASSIGN(m.is_terminated, ffi.method("GrammarMatcher", "is_terminated"));
  BATON_ASSIGN(const FfiMethod create_tokenizer, ffi.method("TokenizerInfo", "__ffi_init__"));
  BATON_ASSIGN(const FfiMethod create_compiler, ffi.method("GrammarCompiler", "__ffi_init__"));
  BATON_ASSIGN(const FfiMethod create_array, ffi.global("ffi.Array"));

  std::vector<FfiValue> tokens, stops;
  tokens.reserve(vocabulary.tokens.size());
  for (const std::string& token : vocabulary.tokens) tokens.push_back(ffi.bytes(token));
  for (const int32_t id : vocabulary.stop_ids) stops.push_back(FfiValue::of(int64_t{id}));
  BATON_ASSIGN(const FfiValue token_list, ffi.call(create_array, std::span<const FfiValue>(tokens)));
  BATON_ASSIGN(const FfiValue stop_list, ffi.call(create_array, std::span<const FfiValue>(stops)));
  const FfiValue raw = FfiValue::of(int64_t{0}), size = FfiValue::of(static_cast<int64_t>(vocabulary.tokens.size())),
                 no = FfiValue::of(false), one = FfiValue::of(int64_t{1}), unlimited = FfiValue::of(int64_t{-1});
  BATON_ASSIGN(const FfiValue info, ffi.call(create_tokenizer, {&token_list, &raw, &size, &stop_list, &no}));
  // One thread a compilation, no cache of its own, every mask worked out now rather than while tokens wait for it.
  BATON_ASSIGN(result->compiler_, ffi.call(create_compiler, {&info, &one, &no, &unlimited, &no}));

  result->every_.assign((vocabulary.tokens.size() + 31) / 32, 0);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (!vocabulary.tokens[id].empty()) result->every_[id / 32] |= static_cast<int32_t>(1U << id % 32);
  result->stop_ids_ = vocabulary.stop_ids;
  return result;
}

Result<FfiValue> GrammarBackend::compile(const GrammarSpec& spec) const {
  const FfiValue yes = FfiValue::of(true), no = FfiValue::of(false), none{};
  const auto schema = [&](std::string_view text) {
    const FfiValue value = ffi_->string(text), space = FfiValue::of(kMostWhitespace);
    return ffi_->call(methods_.compile_json_schema, {&compiler_, &value, &yes, &none, &none, &yes, &space, &no});
  };
  const auto ebnf = [&](std::string_view grammar) {
    const FfiValue value = ffi_->string(grammar), root = ffi_->string("root");
    return ffi_->call(methods_.compile_ebnf, {&compiler_, &value, &root});
  };
  const SchemaToEbnf translate = [&](const std::string& json_schema) -> Result<std::string> {
    const FfiValue value = ffi_->string(json_schema), space = FfiValue::of(kMostWhitespace), style = ffi_->string("json");
    BATON_ASSIGN(const FfiValue grammar, ffi_->call(methods_.schema_to_ebnf, {&value, &yes, &none, &none, &yes, &space, &style, &no}));
    return grammar.text();
  };
  const FfiValue text = ffi_->string(spec.text);
  const bool is_json = spec.kind == GrammarSpec::Kind::kJsonSchema || spec.kind == GrammarSpec::Kind::kStructuralTag;
  json::value parsed;
  if (is_json) {
    json::error_code failed;
    json::parse_options options;
    options.max_depth = kMostJsonNesting;
    parsed = json::parse(spec.text, failed, {}, options);
    if (failed) return Error{Error::Kind::kInvalid, fmt::format("the grammar is not JSON: {}", failed.message())};
  }
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonSchema: {
      if (!restricts_strings(parsed)) return schema(spec.text);
      BATON_ASSIGN(const std::string grammar, schema_grammar(parsed, translate));
      return ebnf(grammar);
    }
    case GrammarSpec::Kind::kJsonObject: return schema(kAnyObject);
    case GrammarSpec::Kind::kRegex: return ffi_->call(methods_.compile_regex, {&compiler_, &text});
    case GrammarSpec::Kind::kEbnf: return ebnf(spec.text);
    case GrammarSpec::Kind::kStructuralTag: {
      BATON_TRY(restate_schemas(parsed, translate));
      const FfiValue tag = ffi_->string(json::serialize(parsed));
      return ffi_->call(methods_.compile_structural_tag, {&compiler_, &tag});
    }
  }
  return Error{Error::Kind::kUnsupported, "this kind of grammar is not known"};
}

Result<size_t> GrammarBackend::bytes(const FfiValue& grammar) const {
  BATON_ASSIGN(const FfiValue size, ffi_->call(methods_.memory_size, {&grammar}));
  return static_cast<size_t>(std::max<int64_t>(size.integer(), 0));
}

Result<FfiValue> GrammarBackend::matcher(const FfiValue& grammar) const {
  const FfiValue none{}, no = FfiValue::of(false), unlimited = FfiValue::of(int64_t{-1});
  return ffi_->call(methods_.create_matcher, {&grammar, &none, &no, &unlimited, &none});
}

Result<bool> GrammarBackend::fill(const FfiValue& matcher, std::span<int32_t> row) const {
  BATON_CHECK(row.size() == row_words());
  int64_t shape[2] = {1, static_cast<int64_t>(row.size())};
  tvm_ffi::Tensor tensor{row.data(), {1, 0}, 2, {0, 32, 1}, shape, nullptr, 0};
  const FfiValue rows = FfiValue::of(&tensor), first = FfiValue::of(int64_t{0}), no = FfiValue::of(false);
  BATON_ASSIGN(const FfiValue restricts, ffi_->call(methods_.fill, {&matcher, &rows, &first, &no}));
  if (restricts.integer() != 0) {
    // The library sets the bits beyond the last token as well, and lets a run of any tokens hold those that do not exist.
    for (size_t i = 0; i < row.size(); ++i) row[i] &= every_[i];
    return true;
  }
  std::copy(every_.begin(), every_.end(), row.begin());
  return false;
}

Result<bool> GrammarBackend::accept(const FfiValue& matcher, int32_t token) const {
  const auto index = static_cast<size_t>(token);
  if (token < 0 || index / 32 >= every_.size() || (static_cast<uint32_t>(every_[index / 32]) >> index % 32 & 1) == 0) return false;
  const FfiValue id = FfiValue::of(int64_t{token}), no = FfiValue::of(false);
  BATON_ASSIGN(const FfiValue accepted, ffi_->call(methods_.accept, {&matcher, &id, &no}));
  return accepted.integer() != 0;
}

Status GrammarBackend::rollback(const FfiValue& matcher, size_t tokens) const {
  const FfiValue count = FfiValue::of(static_cast<int64_t>(tokens));
  const auto done = ffi_->call(methods_.rollback, {&matcher, &count});
  if (!done.ok()) return done.error();
  return {};
}

Result<FfiValue> GrammarBackend::fork(const FfiValue& matcher) const { return ffi_->call(methods_.fork, {&matcher}); }

Result<bool> GrammarBackend::terminated(const FfiValue& matcher) const {
  BATON_ASSIGN(const FfiValue ended, ffi_->call(methods_.is_terminated, {&matcher}));
  return ended.integer() != 0;
}

}  // namespace baton::text
