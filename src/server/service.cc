#include "server/service.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <random>

#include "base/random.h"
#include "engine/grammar_constraint.h"
#include "server/thinking_budget.h"
#include "text/grammar/tool_grammar.h"

namespace baton::server {
namespace {

using api::ApiError;

uint64_t salt_of(const std::string& tenant, const std::string& cache_salt) {
  if (tenant.empty() && cache_salt.empty()) return 0;
  const std::string both = tenant + '\0' + cache_salt;
  return XXH3_64bits(both.data(), both.size()) >> 1;  // the highest bit is the scheduler's
}

text::ToolGrammarOptions::Choice choice_of(api::Tools::Choice choice) {
  using From = api::Tools::Choice;
  using To = text::ToolGrammarOptions::Choice;
  return choice == From::kRequired ? To::kRequired : choice == From::kNamed ? To::kNamed : To::kAuto;
}

void add_stops(sched::RequestSpec& spec, std::span<const int32_t> ids) {
  for (const int32_t id : ids)
    if (std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), id) == spec.stop_tokens.end()) spec.stop_tokens.push_back(id);
}

}  // namespace

Service::Service(const ServedModel& model, engine::Engine& engine, Metrics& metrics, const ServiceOptions& options)
    : model_(model), engine_(engine), metrics_(metrics), options_(options), pool_(options.output_threads) {
  std::random_device device;
  seed_key_ = uint64_t{device()} << 32 | device();
}

Service::~Service() {
  cancel_all();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return live_.empty(); });
}

api::ApiResult<text::jinja::Rendered> Service::render(const api::ChatRequest& request) const {
  if (model_.chat() == nullptr) return ApiError::invalid("This model has no chat template; use /v1/completions, or give --chat-template.");
  auto rendered = model_.chat()->render(request.prompt);
  if (!rendered.ok()) return ApiError::of(rendered.error(), "messages");
  return std::move(*rendered);
}

api::ApiResult<std::vector<int32_t>> Service::encode(const text::jinja::Rendered& rendered) const {
  auto ids = model_.tokenizer().encode(rendered.text, {}, rendered.untrusted);
  if (!ids.ok()) return ApiError::of(ids.error(), "messages");
  return std::move(*ids);
}

api::ApiResult<std::vector<int32_t>> Service::encode(const api::Prompt& prompt, bool add_special, std::string_view field) const {
  if (!prompt.is_text()) return prompt.ids;
  auto ids = model_.tokenizer().encode(prompt.text, {.added_tokens = text::AddedTokens::kAll, .add_special_tokens = add_special});
  if (!ids.ok()) return ApiError::of(ids.error(), std::string(field));
  return std::move(*ids);
}

api::ApiResult<std::vector<int32_t>> Service::prompt_of(api::ChatRequest& request) const {
  request.prompt.trust.assistant = options_.trust_assistant;
  auto rendered = render(request);
  if (!rendered.ok()) return rendered.error();
  return encode(*rendered);
}

std::optional<ApiError> Service::check_length(const api::Sampling& sampling, int64_t prompt_tokens) const {
  const int64_t context = model_.context_tokens();
  const int64_t wanted = sampling.max_tokens.value_or(1);
  if (prompt_tokens + wanted > context)
    return ApiError::invalid(
        fmt::format("This model's context holds {} tokens. The prompt has {} and {} are to be generated; shorten the one or the other.",
                    context, prompt_tokens, wanted),
        "context_length_exceeded");
  return std::nullopt;
}

sched::RequestSpec Service::spec_of(const api::Request& request, std::vector<int32_t> prompt, const Caller& caller) const {
  const api::Sampling& s = request.sampling;
  const SamplingDefaults& d = model_.defaults();
  sched::RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.sampling.temperature = s.temperature.value_or(d.temperature);
  spec.sampling.top_p = s.top_p.value_or(d.top_p);
  spec.sampling.top_k = s.top_k.value_or(d.top_k);
  spec.sampling.min_p = s.min_p.value_or(d.min_p);
  spec.sampling.repetition_penalty = s.repetition_penalty.value_or(d.repetition_penalty);
  spec.sampling.frequency_penalty = s.frequency_penalty;
  spec.sampling.presence_penalty = s.presence_penalty;
  for (const int32_t id : model_.padding()) spec.sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  for (const auto& [id, bias] : s.logit_bias)
    if (model_.tokenizer().has(id)) spec.sampling.logit_bias.emplace_back(id, bias);
  if (s.seed) {
    spec.sampling.seed = *s.seed;
  } else {
    const uint64_t n = unseeded_.fetch_add(1, std::memory_order_relaxed);
    const PhiloxBlock block = philox(seed_key_, {static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0});
    spec.sampling.seed = uint64_t{block[0]} << 32 | block[1];
  }
  spec.sampling.logprobs = s.logprobs;
  spec.sampling.prompt_logprobs = s.prompt_logprobs;
  if (s.max_tokens) spec.max_tokens = *s.max_tokens;
  spec.min_tokens = s.min_tokens;
  if (!s.ignore_eos) spec.stop_tokens = model_.eos_tokens();
  add_stops(spec, s.stop_token_ids);
  spec.choices = s.n;
  spec.priority = request.priority;
  spec.salt = salt_of(caller.tenant, request.cache_salt);
  spec.deadline = caller.deadline;
  spec.cache_prompt = request.cache_prompt && options_.prefix_caching;
  return spec;
}

OutputOptions Service::output_of(const api::Request& request) const {
  OutputOptions o;
  o.tokenizer = &model_.tokenizer();
  o.skip_special = request.sampling.skip_special_tokens;
  o.stop = request.sampling.stop;
  o.include_stop = request.sampling.include_stop_str_in_output;
  o.logprobs = request.sampling.logprobs >= 0;
  return o;
}

api::ApiResult<Prepared> Service::prepare(const api::Request& request, std::vector<int32_t> prompt, const Caller& caller) const {
  if (prompt.empty()) return ApiError::field("prompt", "is empty; at least one token is needed");
  if (auto error = check_length(request.sampling, static_cast<int64_t>(prompt.size()))) return *error;
  if (request.sampling.max_tokens && request.sampling.min_tokens > *request.sampling.max_tokens)
    return ApiError::field("min_tokens", "must not exceed max_tokens");
  if (request.sampling.n > options_.running)
    return ApiError::field("n", fmt::format("must not exceed {}, the choices that run at once", options_.running));
  Prepared p;
  p.spec = spec_of(request, std::move(prompt), caller);
  p.output = output_of(request);
  p.client_stops = request.sampling.stop_token_ids;
  p.grammar = request.grammar;
  p.grammar_field = request.grammar_field;
  p.timing = caller.timing;
  return p;
}

api::ApiResult<Prepared> Service::prepare(api::ChatRequest& request, const Caller& caller) const {
  auto prompt = prompt_of(request);
  if (!prompt.ok()) return prompt.error();
  const bool reasons = model_.markup().opens_reasoning(*prompt, model_.tokenizer());
  auto prepared = prepare(request, std::move(*prompt), caller);
  if (!prepared.ok()) return prepared.error();
  Prepared& p = *prepared;
  p.output.markup = &model_.markup();
  p.output.starts_in_reasoning = reasons;
  if (!request.tools.empty()) {
    p.tools = std::make_unique<text::ToolTypes>(request.tools.types());
    p.output.tools = p.tools.get();
  }
  if (auto error = choose_grammar(request, p)) return *error;
  return std::move(*prepared);
}

std::optional<ApiError> Service::choose_grammar(api::ChatRequest& request, Prepared& p) const {
  const text::OutputMarkup& markup = model_.markup();
  const int32_t close = markup.id(text::Marker::kThinkEnd);
  const bool forced = request.tools.choice == api::Tools::Choice::kRequired || request.tools.choice == api::Tools::Choice::kNamed;
  if (!request.tools.empty() && (forced || p.grammar)) {
    text::ToolGrammarOptions options{
        .choice = choice_of(request.tools.choice), .named = request.tools.named, .parallel = request.tools.parallel};
    if (p.grammar && !forced) {
      using Kind = text::GrammarSpec::Kind;
      if (p.grammar->kind != Kind::kJsonSchema && p.grammar->kind != Kind::kJsonObject)
        return ApiError::unsupported("tools", "cannot be combined with a pattern or a grammar; use a JSON schema or tool_choice none");
      boost::json::error_code error;
      options.response_schema =
          p.grammar->kind == Kind::kJsonObject ? boost::json::value{{"type", "object"}} : boost::json::parse(p.grammar->text, error);
      if (error) return ApiError::field(p.grammar_field, "holds no valid JSON schema");
    }
    auto spec = text::tool_call_grammar(request.tools.functions, options, markup, model_.tokenizer());
    if (!spec.ok()) return ApiError::of(spec.error(), "tools");
    p.grammar = std::move(*spec);
    if (p.grammar_field.empty()) p.grammar_field = "tools";
  }
  if (!p.output.starts_in_reasoning) return std::nullopt;
  if ((p.grammar || request.thinking_token_budget) && close < 0)
    return ApiError::invalid("This model has no token for </think>, so the form of its answer cannot be enforced.", "unsupported");
  if (p.grammar) p.grammar_after = close;
  p.thinking_budget = request.thinking_token_budget;
  return std::nullopt;
}

std::optional<ApiError> Service::form(Prepared& p) const {
  if (p.grammar) {
    auto compiler = model_.grammars();
    if (!compiler.ok() && compiler.error().kind == Error::Kind::kIo) return ApiError::overloaded(compiler.error().message);
    if (!compiler.ok()) return ApiError{.status = 501, .type = "server_error", .code = "unsupported", .message = compiler.error().message};
    const Result<text::GrammarCompiler::Compiled> compiled = (*compiler)->compile(std::move(*p.grammar)).get();
    p.grammar.reset();
    if (!compiled.ok()) return ApiError::of(compiled.error(), p.grammar_field);
    text::GrammarMatcher::Options options;
    if (p.grammar_after) {
      options.begins_after = p.grammar_after;
      options.not_before = text::tool_markers(model_.markup());
    }
    auto matcher = text::GrammarMatcher::create(*compiled, std::move(options));
    if (!matcher.ok()) return ApiError::of(matcher.error(), p.grammar_field);
    p.constraint = engine::constrain(std::move(*matcher));
    // Nothing may follow a form: its end ends the output whatever ignore_eos says, and comes no earlier than min_tokens allows.
    add_stops(p.spec, model_.eos_tokens());
    p.formed = true;
  }
  if (p.thinking_budget) {
    const text::OutputMarkup& markup = model_.markup();
    ThinkingBudget budget{.close = markup.id(text::Marker::kThinkEnd),
                          .not_before = text::tool_markers(markup),
                          .tokens = *p.thinking_budget,
                          .columns = model_.columns()};
    if (const int32_t open = markup.id(text::Marker::kThink); open >= 0) budget.not_after = {open};
    p.constraint = limit_thinking(std::move(budget), std::move(p.constraint));
  }
  return std::nullopt;
}

std::optional<ApiError> Service::reserve(int64_t choices) {
  if (choices > options_.most_choices) {
    metrics_.refused.add(Refused::kInvalid);
    return ApiError::invalid(fmt::format("The request has {} choices in all, and at most {} may run and wait at once; ask for fewer.",
                                         choices, options_.most_choices));
  }
  if (open_.fetch_add(choices) + choices <= options_.most_choices) return std::nullopt;
  open_.fetch_sub(choices);
  metrics_.refused.add(Refused::kQueueFull);
  return ApiError::slow_down("As many requests run and wait as may; try again later.");
}

api::ApiResult<Service::Generations> Service::start(std::vector<Prepared> prepared, const std::shared_ptr<Receiver>& receiver) {
  int64_t choices = 0;
  for (const Prepared& p : prepared) choices += p.spec.choices;
  if (auto full = reserve(choices)) return std::move(*full);
  // One lane for all that share the receiver.
  const auto lanes = static_cast<uint64_t>(pool_.lanes());
  Generation::Placement placement{.lane = static_cast<int>(lane_.fetch_add(1, std::memory_order_relaxed) % lanes)};
  Generations started;
  for (Prepared& p : prepared) {
    const int32_t own = p.spec.choices;
    auto generation = start_reserved(std::move(p), receiver, placement);
    choices -= own;
    if (!generation.ok()) {
      // The engine takes what has been prepared and reserved; if ever it does not, the rest of the reservation goes back, too.
      open_.fetch_sub(choices);
      for (const auto& g : started) g->cancel();
      return generation.error();
    }
    placement.first_choice += own;
    started.push_back(std::move(*generation));
  }
  return started;
}

api::ApiResult<std::shared_ptr<Generation>> Service::start(Prepared prepared, const std::shared_ptr<Receiver>& receiver) {
  std::vector<Prepared> one;
  one.push_back(std::move(prepared));
  auto started = start(std::move(one), receiver);
  if (!started.ok()) return started.error();
  return std::move(started->front());
}

api::ApiResult<std::shared_ptr<Generation>> Service::start_reserved(Prepared prepared, const std::shared_ptr<Receiver>& receiver,
                                                                    const Generation::Placement& placement) {
  const int64_t choices = prepared.spec.choices;
  const Generation::Surroundings around{engine_, pool_, metrics_, [this](Generation& g) { forget(g); }};
  auto generation = std::make_shared<Generation>(around, std::move(prepared), receiver, placement);
  {
    const std::lock_guard lock(mutex_);
    live_.emplace(generation.get(), generation);
  }
  if (const Status s = generation->start(); !s.ok()) {
    {
      const std::lock_guard lock(mutex_);
      live_.erase(generation.get());
    }
    open_.fetch_sub(choices);
    changed_.notify_all();
    if (s.error().kind == Error::Kind::kExhausted) return ApiError::slow_down(s.error().message);
    return ApiError::of(s.error());
  }
  return generation;
}

void Service::forget(Generation& generation) {
  open_.fetch_sub(generation.choices());
  metrics_.open.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  live_.erase(&generation);
  changed_.notify_all();
}

void Service::cancel_all() {
  std::vector<std::shared_ptr<Generation>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, weak] : live_)
      if (auto g = weak.lock()) all.push_back(std::move(g));
  }
  for (const auto& g : all) g->cancel();
}

bool Service::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return live_.empty(); });
}

int64_t Service::retry_after_s() const {
  const sched::Metrics m = engine_.metrics().scheduler;
  const double mean = m.admissions > 0 ? static_cast<double>(m.queue_wait_sum) / 1e9 / static_cast<double>(m.admissions) : 1;
  return std::clamp<int64_t>(static_cast<int64_t>(mean + 1), 1, 30);
}

}  // namespace baton::server
