// Questions answered by an engine in this process: render, tokenise, generate, parse.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "app/eval_answerer.h"
#include "engine/local_engine.h"
#include "text/chat_template.h"
#include "text/parse/output_parser.h"
#include "text/tokenizer.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;
using evaluate::Outcome;
using evaluate::Question;

// Where the engine's thread leaves word of questions that ended.
class Finished {
 public:
  void put(size_t index) {
    {
      const std::lock_guard lock(mutex_);
      ended_.push_back(index);
    }
    changed_.notify_one();
  }
  // Waits for at least one.
  std::vector<size_t> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ended_.empty(); });
    return std::exchange(ended_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> ended_;
};

// One question under way. Read it once Finished has named it.
class Hearing final : public engine::Sink {
 public:
  Hearing(size_t index, Finished& finished) : index_(index), finished_(finished) {}
  void on_event(const sched::Event& event, float, std::span<const ops::TokenLogprob>) override {
    if (event.token >= 0) tokens.push_back(event.token);
    usage = event.usage;
    if (event.reason != sched::FinishReason::kNone) reason = event.reason;
    if (event.last) end();
  }
  void on_refused(const Error& error) override {
    refusal = error.message;
    end();
  }

  std::vector<int32_t> tokens;  // a stop token is the last one
  sched::Usage usage;
  sched::FinishReason reason = sched::FinishReason::kNone;
  std::string refusal;
  Clock::time_point asked = Clock::now(), ended;

 private:
  void end() {
    ended = Clock::now();
    finished_.put(index_);
  }
  size_t index_;
  Finished& finished_;
};

struct Prepared {
  std::vector<int32_t> prompt;
  text::ToolTypes tools;
  bool starts_in_reasoning = false;
};

class LocalAnswerer final : public Answerer {
 public:
  LocalAnswerer(std::string model, const ModelFlags& flags, const AskOptions& ask) : folder_(std::move(model)), flags_(flags), ask_(ask) {}

  Status answer(std::span<const Question> questions, std::span<Outcome> outcomes, const std::function<void(int64_t)>& ended) override {
    BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(folder_));
    BATON_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(folder_));
    BATON_ASSIGN(const text::ChatTemplate chat, text::ChatTemplate::load(folder_));
    const model::Config& config = checkpoint.config();
    if (tokenizer.id_limit() > config.vocab_size)
      return Error{Error::Kind::kInvalid,
                   fmt::format("{}: the tokenizer has ids up to {}, the model {} of them; they do not belong together", folder_,
                               tokenizer.id_limit() - 1, config.vocab_size)};
    const text::OutputMarkup markup(tokenizer);
    std::vector<Prepared> prepared(questions.size());
    int64_t longest = 1;
    for (size_t i = 0; i < questions.size(); ++i) {
      if (const Status s = prepare(questions[i], chat, tokenizer, markup, prepared[i]); !s.ok()) {
        outcomes[i].failure = s.error().message;
        continue;
      }
      const auto tokens = static_cast<int64_t>(prepared[i].prompt.size());
      if (tokens + ask_.max_tokens > config.max_position_embeddings)
        outcomes[i].failure = fmt::format("a prompt of {} tokens and {} to generate exceed the model's {} positions; lower --max-tokens",
                                          tokens, ask_.max_tokens, config.max_position_embeddings);
      else
        longest = std::max(longest, tokens);
    }
    if (std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.failure.empty(); })) return {};  // nothing to ask
    BATON_ASSIGN(engine::LocalOptions options, flags_.local_options(checkpoint));
    options.context_tokens = longest + ask_.max_tokens;
    options.vocabulary = tokenizer.id_limit();
    options.running = ask_.parallel;
    options.context_flag = "the longest prompt plus --max-tokens";
    options.running_flag = "--parallel";

    Finished finished;
    std::vector<std::unique_ptr<Hearing>> hearings(questions.size());  // outlive the engine
    BATON_ASSIGN(const auto local, engine::LocalEngine::open(checkpoint, options));
    size_t next = 0;
    int64_t under_way = 0, done = 0;
    for (;;) {
      for (; next < questions.size() && under_way < ask_.parallel; ++next) {
        if (!outcomes[next].failure.empty()) {
          ended(++done);
          continue;
        }
        hearings[next] = std::make_unique<Hearing>(next, finished);
        if (const auto id = local->engine().submit(spec_of(prepared[next], config), *hearings[next]); id.ok()) {
          ++under_way;
        } else {
          outcomes[next].failure = id.error().message;
          ended(++done);
        }
      }
      if (under_way == 0) return {};
      for (const size_t i : finished.take()) {
        take_answer(*hearings[i], prepared[i], tokenizer, markup, outcomes[i]);
        --under_way;
        ended(++done);
      }
    }
  }

 private:
  Status prepare(const Question& q, const text::ChatTemplate& chat, const text::Tokenizer& tokenizer, const text::OutputMarkup& markup,
                 Prepared& out) const {
    text::ChatRequest request;
    request.messages = text::jinja::from_json(q.request.at("messages"), true);
    if (const boost::json::value* tools = q.request.if_contains("tools")) {
      request.tools = text::jinja::from_json(*tools, true);
      for (const boost::json::value& tool : tools->as_array()) add_types(tool, out.tools);
    }
    if (!ask_.reasoning_effort.empty()) request.options.emplace_back("reasoning_effort", text::ChatValue::text(ask_.reasoning_effort));
    BATON_ASSIGN(const text::jinja::Rendered rendered, chat.render(request));
    BATON_ASSIGN(out.prompt, tokenizer.encode(rendered.text, {}, rendered.untrusted));
    if (out.prompt.empty()) return Error{Error::Kind::kInvalid, "the prompt is empty"};
    out.starts_in_reasoning = markup.opens_reasoning(out.prompt, tokenizer);
    return {};
  }

  static void add_types(const boost::json::value& tool, text::ToolTypes& types) {
    const boost::json::object* o = tool.if_object();
    if (o == nullptr) return;
    if (const boost::json::value* function = o->if_contains("function"); function != nullptr && function->is_object())
      o = &function->get_object();
    const boost::json::value* name = o->if_contains("name");
    if (name == nullptr || !name->is_string()) return;
    const boost::json::value* parameters = o->if_contains("parameters");
    types.add(std::string_view(name->get_string()), parameters != nullptr ? *parameters : boost::json::value());
  }

  sched::RequestSpec spec_of(const Prepared& p, const model::Config& config) const {
    sched::RequestSpec spec;
    spec.prompt = p.prompt;
    spec.max_tokens = ask_.max_tokens;
    spec.stop_tokens = config.eos_token_ids;
    spec.sampling.temperature = ask_.temperature;
    spec.sampling.top_p = ask_.top_p;
    spec.sampling.seed = ask_.seed;
    return spec;
  }

  static void take_answer(const Hearing& heard, const Prepared& p, const text::Tokenizer& tokenizer, const text::OutputMarkup& markup,
                          Outcome& out) {
    if (!heard.refusal.empty()) {
      out.failure = heard.refusal;
      return;
    }
    const bool stopped = heard.reason == sched::FinishReason::kStop;
    if (!stopped && heard.reason != sched::FinishReason::kLength) {
      out.failure = fmt::format("ended early: {}", sched::finish_reason_name(heard.reason));
      return;
    }
    out.seconds = std::chrono::duration<double>(heard.ended - heard.asked).count();
    out.prompt_tokens = heard.usage.prompt_tokens;
    out.cached_tokens = heard.usage.cached_tokens;
    out.completion_tokens = heard.usage.generated_tokens;
    text::OutputParser parser(
        markup, {.starts_in_reasoning = p.starts_in_reasoning, .tools = p.tools.empty() ? nullptr : &p.tools, .tokenizer = &tokenizer});
    std::vector<text::OutputEvent> events;
    const size_t shown = heard.tokens.size() - (stopped && !heard.tokens.empty() ? 1 : 0);
    for (size_t i = 0; i < shown; ++i) parser.add(heard.tokens[i], events);
    parser.finish(stopped ? text::FinishReason::kStop : text::FinishReason::kLength, events);
    for (const text::OutputEvent& e : events) add_event(e, out);
  }

  static void add_event(const text::OutputEvent& e, Outcome& out) {
    using Kind = text::OutputEvent::Kind;
    switch (e.kind) {
      case Kind::kReasoning: out.answer.reasoning += e.text; break;
      case Kind::kContent: out.answer.content += e.text; break;
      case Kind::kToolStart: out.answer.calls.push_back({e.text, ""}); break;
      case Kind::kToolArguments: out.answer.calls.back().arguments += e.text; break;
      case Kind::kToolEnd: break;
      case Kind::kFinish: out.finish = text::name_of(e.finish); break;
    }
  }

  std::string folder_;
  ModelFlags flags_;
  AskOptions ask_;
};

}  // namespace

std::unique_ptr<Answerer> local_answerer(std::string model, const ModelFlags& flags, const AskOptions& ask) {
  return std::make_unique<LocalAnswerer>(std::move(model), flags, ask);
}

}  // namespace baton::app
