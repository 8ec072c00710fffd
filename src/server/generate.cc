// POST /generate: the native endpoint, in the shape of SGLang's. In a stream every event has all of its choice so far.
#include "api/generate.h"

#include <algorithm>
#include <chrono>

#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::string id;
  int32_t per_prompt = 1, prompts = 1;
  bool many = false;
  bool logprobs = false, text_in_logprobs = false;
  int64_t logprob_start = 0;
  Clock::time_point begin = Clock::now();

  int32_t choices() const { return per_prompt * prompts; }
};

// A choice so far.
struct Part {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<api::TokenLogprobs> logprobs;
  std::optional<api::Finish> finish;
  api::Usage usage;

  void add(ChoiceNews& news, const api::Usage& now) {
    for (const text::OutputEvent& e : news.events)
      if (e.kind == text::OutputEvent::Kind::kContent) text += e.text;
    ids.insert(ids.end(), news.token_ids.begin(), news.token_ids.end());
    for (api::TokenLogprobs& l : news.logprobs) logprobs.push_back(std::move(l));
    if (news.finish) finish = std::move(*news.finish);
    usage = now;
    usage.completion = static_cast<int64_t>(ids.size());  // of this choice
  }
  api::Generated shown(const Shape& shape, std::span<const api::TokenLogprobs> prompt) const {
    api::Generated g;
    g.id = shape.id;
    g.text = text;
    g.ids = ids;
    g.finish = finish;
    g.usage = usage;
    g.seconds = std::chrono::duration<double>(Clock::now() - shape.begin).count();
    g.logprobs = shape.logprobs;
    g.text_in_logprobs = shape.text_in_logprobs;
    g.output_logprobs = logprobs;
    g.input_logprobs = prompt.subspan(std::min(static_cast<size_t>(shape.logprob_start), prompt.size()));
    return g;
  }
};

class GenerateStream final : public StreamedAnswer {
 public:
  GenerateStream(std::shared_ptr<Call> call, Metrics& metrics, Shape shape)
      : StreamedAnswer(std::move(call), metrics, shape.prompts), shape_(std::move(shape)), parts_(static_cast<size_t>(shape_.choices())),
        prompts_(parts_.size()) {}

  void on_prompt(int32_t first_choice, std::vector<api::TokenLogprobs> logprobs) override {
    prompts_[static_cast<size_t>(first_choice)] = std::move(logprobs);
  }
  void on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) override {
    open();
    Part& part = parts_[static_cast<size_t>(choice)];
    part.add(news, usage);
    api::Generated shown = part.shown(shape_, prompts_[static_cast<size_t>(choice - choice % shape_.per_prompt)]);
    if (shape_.many) shown.index = choice;
    api::append_generated_event(out_, shown);
  }

 private:
  void write_beginning() override {}
  void write_end(const api::Usage&) override { api::append_generate_done(out_); }
  void write_error(const api::ApiError& error) override { api::append_error_event(out_, api::Dialect::kNative, error, call().id()); }

  const Shape shape_;
  std::vector<Part> parts_;
  std::vector<std::vector<api::TokenLogprobs>> prompts_;  // by first choice
};

class GenerateWhole final : public WholeAnswer {
 public:
  GenerateWhole(std::shared_ptr<Call> call, Shape shape)
      : WholeAnswer(std::move(call), shape.choices(), shape.prompts), shape_(std::move(shape)),
        parts_(static_cast<size_t>(shape_.choices())) {}

 private:
  void keep(int32_t choice, ChoiceNews& news, const api::Usage& usage) override { parts_[static_cast<size_t>(choice)].add(news, usage); }
  std::string body(const api::Usage&) override {
    std::string out = shape_.many ? "[" : "";
    for (int32_t c = 0; c < shape_.choices(); ++c) {
      if (c > 0) out += ',';
      api::append_generated(out, parts_[static_cast<size_t>(c)].shown(shape_, prompt_logprobs(c - c % shape_.per_prompt)));
    }
    if (shape_.many) out += ']';
    return out;
  }

  const Shape shape_;
  std::vector<Part> parts_;
};

}  // namespace

void post_generate(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_generate(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    call->ignored(request->ignored_fields);
    if (!server.check_model(*call, request->model)) return;
    const Service& service = server.service();
    Shape shape;
    shape.id = request->id.empty() ? call->number() : request->id;
    shape.per_prompt = request->sampling.n;
    shape.prompts = static_cast<int32_t>(request->prompts.size());
    shape.many = request->many();
    shape.logprobs = request->sampling.logprobs >= 0;
    shape.text_in_logprobs = request->text_in_logprobs;
    shape.logprob_start = request->logprob_start;
    std::vector<Prepared> all;
    for (api::Prompt& prompt : request->prompts) {
      auto ids = service.encode(prompt, true, "text");
      if (!ids.ok()) return refuse(server, *call, ids.error());
      auto prepared = service.prepare(*request, std::move(*ids), server.caller(*call));
      if (!prepared.ok()) return refuse(server, *call, prepared.error());
      prepared->output.token_ids = true;
      all.push_back(std::move(*prepared));
    }
    if (request->stream.on)
      return launch(server, call, std::move(all), std::make_shared<GenerateStream>(call, server.metrics(), std::move(shape)));
    launch(server, call, std::move(all), std::make_shared<GenerateWhole>(call, std::move(shape)));
  });
}

}  // namespace baton::server
