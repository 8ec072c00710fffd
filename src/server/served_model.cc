#include "server/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <ctime>

#include "base/file.h"

namespace baton::server {
namespace {

namespace fs = std::filesystem;

struct Between {
  float least, most;
};

// What requests could not say either must not be their default.
Result<float> read_number(const boost::json::object& from, std::string_view key, float otherwise, Between range, const std::string& where) {
  const boost::json::value* v = from.if_contains(key);
  if (v == nullptr || v->is_null()) return otherwise;
  if (!v->is_number()) return Error{Error::Kind::kInvalid, fmt::format("{}: {} is not a number", where, key)};
  const auto number = v->to_number<float>();
  if (!(number >= range.least && number <= range.most))
    return Error{Error::Kind::kInvalid, fmt::format("{}: {} is {}; it must be from {} to {}", where, key, number, range.least, range.most)};
  return number;
}

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::load(const ServedModelOptions& options) {
  const fs::path tokenizer_path = options.tokenizer.empty() ? options.folder : options.tokenizer;
  BATON_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::load(tokenizer_path));
  if (tokenizer.id_limit() > options.columns)
    return Error{Error::Kind::kInvalid,
                 fmt::format("{}: the tokenizer has ids up to {} and the model {} of them; they do not belong together",
                             tokenizer_path.string(), tokenizer.id_limit() - 1, options.columns)};
  std::unique_ptr<ServedModel> m(new ServedModel(options, std::move(tokenizer)));
  ServedModelOptions& o = m->options_;
  if (o.names.empty()) {
    fs::path folder = fs::absolute(o.folder).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    o.names.push_back(folder.filename().string());
  }
  if (o.eos_tokens.empty())
    for (const char* end : {"<|endoftext|>", "<|user|>", "<|observation|>"})
      if (const auto id = m->tokenizer_.id_of(end)) o.eos_tokens.push_back(*id);
  auto chat = text::ChatTemplate::load(o.folder, o.chat_template);
  if (chat.ok())
    m->chat_ = std::move(*chat);
  else if (!o.chat_template.empty() || chat.error().kind != Error::Kind::kNotFound)
    return chat.error();  // a model without one completes text
  for (int32_t id = 0; id < static_cast<int32_t>(m->tokenizer_.id_limit()); ++id)
    if (!m->tokenizer_.has(id)) m->padding_.push_back(id);
  m->created_ = static_cast<int64_t>(std::time(nullptr));
  BATON_TRY(m->read_defaults());
  return m;
}

bool ServedModel::has_name(std::string_view name) const {
  return std::find(options_.names.begin(), options_.names.end(), name) != options_.names.end();
}

Status ServedModel::read_defaults() {
  const fs::path path = options_.folder / "generation_config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  BATON_ASSIGN(const std::string text, read_regular_file(path, 1 << 20));
  boost::json::error_code error;
  const boost::json::value root = boost::json::parse(text, error);
  if (error || !root.is_object()) return Error{Error::Kind::kInvalid, fmt::format("{}: not a JSON object", path.string())};
  const boost::json::object& config = root.get_object();
  const std::string where = path.string();
  constexpr float kSome = 1e-6F, kMostInt = 2147483520;  // the largest float that an int holds
  BATON_ASSIGN(defaults_.temperature, read_number(config, "temperature", 1, {0, 100}, where));
  BATON_ASSIGN(defaults_.top_p, read_number(config, "top_p", 1, {kSome, 1}, where));
  BATON_ASSIGN(defaults_.min_p, read_number(config, "min_p", 0, {0, 1}, where));
  BATON_ASSIGN(defaults_.repetition_penalty, read_number(config, "repetition_penalty", 1, {kSome, 10}, where));
  BATON_ASSIGN(const float top_k, read_number(config, "top_k", 0, {-1, kMostInt}, where));
  defaults_.top_k = top_k > 0 ? static_cast<int32_t>(top_k) : 0;
  const boost::json::value* sample = config.if_contains("do_sample");
  if (sample != nullptr && sample->is_bool() && !sample->get_bool()) defaults_.temperature = 0;
  return {};
}

Result<text::GrammarCompiler*> ServedModel::grammars() const {
  const std::lock_guard lock(mutex_);
  if (!grammars_) {
    text::GrammarCompilerOptions options;
    options.workers = options_.grammar_workers;
    BATON_ASSIGN(grammars_,
                 text::GrammarCompiler::start(
                     text::GrammarVocabulary::of(tokenizer_, options_.eos_tokens, static_cast<int32_t>(options_.columns)), options));
  }
  return grammars_.get();
}

text::GrammarCompiler::Counters ServedModel::grammar_counters() const {
  const std::lock_guard lock(mutex_);
  return grammars_ ? grammars_->counters() : text::GrammarCompiler::Counters{};
}

}  // namespace baton::server
