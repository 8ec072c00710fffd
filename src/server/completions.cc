// POST /v1/completions: text that goes on, one prompt or many.
#include "api/completion.h"

#include "api/completion_writer.h"
#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {
namespace {

// What of an answer is text: everything, since nothing is told apart.
std::string text_of(const ChoiceNews& news) {
  std::string text;
  for (const text::OutputEvent& e : news.events)
    if (e.kind == text::OutputEvent::Kind::kContent) text += e.text;
  return text;
}

struct Shape {
  api::AnswerHead head;
  int32_t per_prompt = 1;           // choices
  std::vector<std::string> echoes;  // by prompt; empty: none is repeated
  bool logprobs = false;
  bool include_usage = false, continuous_usage = false;

  int32_t choices() const { return per_prompt * prompts; }
  int32_t prompts = 1;
  std::string_view echo(int32_t choice) const {
    return echoes.empty() ? std::string_view() : std::string_view(echoes[static_cast<size_t>(choice / per_prompt)]);
  }
};

class CompletionStream final : public StreamedAnswer {
 public:
  CompletionStream(std::shared_ptr<Call> call, Metrics& metrics, Shape shape)
      : StreamedAnswer(std::move(call), metrics, shape.prompts), shape_(std::move(shape)),
        writer_(shape_.head, {.choices = shape_.choices(),
                              .logprobs = shape_.logprobs,
                              .include_usage = shape_.include_usage,
                              .continuous_usage = shape_.continuous_usage}),
        echoed_(static_cast<size_t>(shape_.choices())), prompt_(static_cast<size_t>(shape_.choices())) {}

  void on_prompt(int32_t first_choice, std::vector<api::TokenLogprobs> logprobs) override {
    prompt_[static_cast<size_t>(first_choice)] = std::move(logprobs);
  }
  void on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) override {
    open();
    const auto index = static_cast<size_t>(choice);
    if (!echoed_[index] && !shape_.echoes.empty()) {
      const auto first = index - index % static_cast<size_t>(shape_.per_prompt);
      writer_.text(out_, choice, shape_.echo(choice), shape_.logprobs ? prompt_[first] : std::vector<api::TokenLogprobs>(), usage);
    }
    echoed_[index] = true;
    writer_.text(out_, choice, text_of(news), news.logprobs, usage);
    if (news.finish) writer_.finish(out_, choice, *news.finish, usage);
  }

 private:
  void write_beginning() override {}
  void write_end(const api::Usage& usage) override {
    if (shape_.include_usage) writer_.usage(out_, usage);
    writer_.done(out_);
  }
  void write_error(const api::ApiError& error) override { writer_.error(out_, error); }

  const Shape shape_;
  api::CompletionChunkWriter writer_;
  std::vector<bool> echoed_;
  std::vector<std::vector<api::TokenLogprobs>> prompt_;  // by first choice
};

class CompletionWhole final : public WholeAnswer {
 public:
  CompletionWhole(std::shared_ptr<Call> call, Shape shape)
      : WholeAnswer(std::move(call), shape.choices(), shape.prompts), shape_(std::move(shape)) {}

 private:
  std::string body(const api::Usage& usage) override {
    std::vector<api::CompletionChoice> out(choices().size());
    for (size_t i = 0; i < out.size(); ++i) {
      const api::Choice& from = choices()[i];
      const auto choice = static_cast<int32_t>(i);
      const auto prompt = prompt_logprobs(choice - choice % shape_.per_prompt);
      out[i].text = std::string(shape_.echo(choice)) + from.message.joined(api::Message::Kind::kContent);
      out[i].finish = from.finish;
      if (!shape_.echoes.empty()) out[i].logprobs.assign(prompt.begin(), prompt.end());
      out[i].logprobs.insert(out[i].logprobs.end(), from.logprobs.begin(), from.logprobs.end());
      out[i].prompt_logprobs.assign(prompt.begin(), prompt.end());
    }
    std::string body;
    api::append_completion_answer(body, shape_.head, out, usage, shape_.logprobs);
    return body;
  }

  const Shape shape_;
};

}  // namespace

void post_completions(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_completion(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    const Service& service = server.service();
    if (request->sampling.max_tokens == 0)  // only with echo
      return refuse(server, *call, api::ApiError::unsupported("max_tokens", "0 is not there yet; ask for 1 token and leave it out"));

    Shape shape;
    shape.head = answer_head(server, *call, "cmpl-", request->model);
    shape.per_prompt = request->sampling.n;
    shape.prompts = static_cast<int32_t>(request->prompts.size());
    shape.logprobs = request->sampling.logprobs >= 0;
    shape.include_usage = request->stream.include_usage;
    shape.continuous_usage = request->stream.continuous_usage;
    std::vector<Prepared> all;
    for (api::Prompt& prompt : request->prompts) {
      auto ids = service.encode(prompt, request->add_special_tokens, "prompt");
      if (!ids.ok()) return refuse(server, *call, ids.error());
      if (request->echo) shape.echoes.push_back(prompt.is_text() ? prompt.text : service.model().tokenizer().decode(*ids));
      auto prepared = service.prepare(*request, std::move(*ids), server.caller(*call));
      if (!prepared.ok()) return refuse(server, *call, prepared.error());
      all.push_back(std::move(*prepared));
    }
    if (request->stream.on)
      return launch(server, call, std::move(all), std::make_shared<CompletionStream>(call, server.metrics(), std::move(shape)));
    launch(server, call, std::move(all), std::make_shared<CompletionWhole>(call, std::move(shape)));
  });
}

}  // namespace baton::server
