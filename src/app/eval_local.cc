// Questions answered by an engine in this process, on the very way that a server's chat completions take from the body of a request on.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "api/chat.h"
#include "app/eval_answerer.h"
#include "engine/local_engine.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/service.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;
using evaluate::Outcome;
using evaluate::Question;

// Where word is left of questions that ended.
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
class Hearing final : public server::Receiver {
 public:
  Hearing(size_t index, Finished& finished) : index_(index), finished_(finished) {}
  void on_news(int32_t, server::ChoiceNews& news, const api::Usage&) override {
    for (const text::OutputEvent& e : news.events) message_.add(e);
    if (news.finish) finish_ = news.finish->reason;
  }
  void on_end(const api::ApiError* error, const api::Usage& usage) override {
    if (error != nullptr) failure_ = error->message;
    usage_ = usage;
    ended_ = Clock::now();
    finished_.put(index_);
  }

  void tell(Outcome& out) const {
    using Kind = api::Message::Kind;
    out.failure = failure_;
    if (!failure_.empty()) return;
    out.seconds = std::chrono::duration<double>(ended_ - asked_).count();
    out.prompt_tokens = usage_.prompt;
    out.cached_tokens = usage_.cached;
    out.completion_tokens = usage_.completion;
    out.drafted_tokens = usage_.drafted.value_or(0);
    out.accepted_tokens = usage_.accepted.value_or(0);
    out.finish = text::name_of(finish_);
    out.answer.reasoning = message_.joined(Kind::kReasoning);
    out.answer.content = message_.joined(Kind::kContent);
    for (const api::Message::Part& p : message_.parts)
      if (p.kind == Kind::kCall) out.answer.calls.push_back({p.name, p.text});
  }

 private:
  size_t index_;
  Finished& finished_;
  api::Message message_;
  text::FinishReason finish_ = text::FinishReason::kStop;
  api::Usage usage_;
  std::string failure_;
  Clock::time_point asked_ = Clock::now(), ended_;
};

class LocalAnswerer final : public Answerer {
 public:
  LocalAnswerer(std::string model, const ModelFlags& flags, const AskOptions& ask) : folder_(std::move(model)), flags_(flags), ask_(ask) {}

  Status answer(std::span<const Question> questions, std::span<Outcome> outcomes, const std::function<void(int64_t)>& ended) override {
    BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(folder_));
    const model::Config& config = checkpoint.config();
    server::ServedModelOptions served;
    served.folder = folder_;
    served.eos_tokens = config.eos_token_ids;
    served.columns = config.vocab_size;
    served.context_tokens = config.max_position_embeddings;
    BATON_ASSIGN(const auto model, server::ServedModel::load(served));
    if (model->chat() == nullptr)
      return Error{Error::Kind::kInvalid,
                   fmt::format("{} has no chat template, so nothing can be asked; add chat_template.jinja", folder_)};
    int64_t longest = 0;
    for (size_t i = 0; i < questions.size(); ++i) {
      const Result<int64_t> tokens = prompt_tokens(*model, questions[i]);
      if (!tokens.ok())
        outcomes[i].failure = tokens.error().message;
      else if (*tokens + ask_.max_tokens > config.max_position_embeddings)
        outcomes[i].failure = fmt::format("a prompt of {} tokens and {} to generate exceed the model's {} positions; lower --max-tokens",
                                          *tokens, ask_.max_tokens, config.max_position_embeddings);
      else
        longest = std::max(longest, *tokens);
    }
    if (longest == 0) return {};  // nothing can be asked
    BATON_ASSIGN(engine::LocalOptions options, flags_.local_options(checkpoint));
    options.context_tokens = longest + ask_.max_tokens;
    options.vocabulary = model->tokenizer().id_limit();
    options.running = ask_.parallel;
    options.context_flag = "the longest prompt plus --max-tokens";
    options.running_flag = "--parallel";
    BATON_ASSIGN(const auto local, engine::LocalEngine::open(checkpoint, options));
    const Status status = run(*model, local->engine(), questions, outcomes, ended);
    local->engine().wait_idle();
    speculation_ = local->engine().metrics().scheduler.speculation;
    return status;
  }
  speculate::Metrics speculation() const override { return speculation_; }

 private:
  Result<int64_t> prompt_tokens(const server::ServedModel& model, const Question& q) const {
    const auto request = api::parse_chat(request_body(q, ask_, model.name()), {});
    if (!request.ok()) return refusal(request.error());
    BATON_ASSIGN(const text::jinja::Rendered rendered, model.chat()->render(request->prompt));
    BATON_ASSIGN(const std::vector<int32_t> ids, model.tokenizer().encode(rendered.text, {}, rendered.untrusted));
    return static_cast<int64_t>(ids.size());
  }

  static Error refusal(const api::ApiError& e) {
    return {Error::Kind::kInvalid, e.param.empty() ? e.message : fmt::format("{} {}", e.param, e.message)};
  }

  // At most ask_.parallel questions are under way.
  Status run(const server::ServedModel& model, engine::Engine& engine, std::span<const Question> questions, std::span<Outcome> outcomes,
             const std::function<void(int64_t)>& ended) const {
    server::Metrics metrics;
    server::ServiceOptions bounds;
    bounds.running = ask_.parallel;
    bounds.most_choices = int64_t{2} * ask_.parallel;
    server::Service service(model, engine, metrics, bounds);
    Finished finished;
    std::vector<std::shared_ptr<Hearing>> hearings(questions.size());
    int64_t under_way = 0, done = 0;
    for (size_t next = 0;;) {
      for (; next < questions.size() && under_way < ask_.parallel; ++next) {
        if (outcomes[next].failure.empty()) {
          hearings[next] = std::make_shared<Hearing>(next, finished);
          outcomes[next].failure = start(service, questions[next], hearings[next]);
        }
        outcomes[next].failure.empty() ? ++under_way : ++done;
      }
      ended(done);
      if (under_way == 0) return {};
      for (const size_t i : finished.take()) {
        hearings[i]->tell(outcomes[i]);
        hearings[i].reset();
        --under_way;
        ++done;
      }
    }
  }

  // Why it could not be started; empty: it was.
  std::string start(server::Service& service, const Question& q, const std::shared_ptr<Hearing>& hearing) const {
    auto request = api::parse_chat(request_body(q, ask_, service.model().name()), {});
    if (!request.ok()) return refusal(request.error()).message;
    auto prepared = service.prepare(*request, {});
    if (!prepared.ok()) return refusal(prepared.error()).message;
    const auto started = service.start(std::move(*prepared), hearing);
    return started.ok() ? std::string() : started.error().message;
  }

  std::string folder_;
  ModelFlags flags_;
  AskOptions ask_;
  speculate::Metrics speculation_;
};

}  // namespace

std::unique_ptr<Answerer> local_answerer(std::string model, const ModelFlags& flags, const AskOptions& ask) {
  return std::make_unique<LocalAnswerer>(std::move(model), flags, ask);
}

}  // namespace baton::app
