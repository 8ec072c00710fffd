// Endpoints of those who run the server: is it well, what is it, how does it do.
#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "server/endpoints.h"
#include "server/server.h"

namespace baton::server {
namespace {

namespace json = boost::json;

// One token, to see that the whole path works.
class Probe final : public Receiver {
 public:
  explicit Probe(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  void on_news(int32_t, ChoiceNews&, const api::Usage&) override {}
  void on_end(const api::ApiError* error, const api::Usage&) override {
    if (error != nullptr) return call_->fail(*error);
    call_->respond(200, R"({"status":"ok"})");
  }

 private:
  std::shared_ptr<Call> call_;
};

json::object speculation_of(const speculate::Metrics& m) {
  json::array drafted, accepted, blocks;
  for (const int64_t n : m.drafted_at) drafted.emplace_back(n);
  for (const int64_t n : m.accepted_at) accepted.emplace_back(n);
  for (const int64_t n : m.blocks_of) blocks.emplace_back(n);
  return {{"blocks", m.blocks},
          {"drafted", m.drafted},
          {"accepted", m.accepted},
          {"accepted_length", m.accepted_length()},
          {"drafted_at", std::move(drafted)},
          {"accepted_at", std::move(accepted)},
          {"blocks_by_length", std::move(blocks)}};
}

// What routers show of an instance, and its page: few numbers, since they ask often.
std::string load_of(const Server& server) {
  const MetricSources m = server.metric_sources();
  const sched::Metrics& e = m.engine.scheduler;
  const pd::DecodeMetrics& d = m.engine.role.decode;
  const auto share = [](int64_t part, int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; };
  const bool decode = d.orders > 0;  // whose prompts are looked up where they are ordered
  return fmt::format(R"({{"status":"ok","running":{},"waiting":{},"cached":{:.4f},"hand_over_ms":{:.3f}}})", e.prefilling + e.decoding,
                     e.waiting + d.waiting + d.open,
                     decode ? share(d.pages_matched, d.pages_matched + d.pages_ordered) : share(e.tokens_matched_state, e.prompt_tokens),
                     share(d.hand_over_ns, d.landed) / 1e6);
}

}  // namespace

void get_livez(Server&, const std::shared_ptr<Call>& call) { call->respond(200, R"({"status":"ok"})"); }

void get_readyz(Server& server, const std::shared_ptr<Call>& call) {
  const std::string why = server.unready();
  if (why.empty()) return call->respond(200, load_of(server));
  call->respond(503, json::serialize(json::object{{"status", "unready"}, {"reason", why}}));
}

void get_health_generate(Server& server, const std::shared_ptr<Call>& call) {
  Service& service = server.service();
  api::Request request;
  request.sampling.max_tokens = 1;
  request.sampling.temperature = 0.0F;
  request.cache_prompt = false;
  auto prepared =
      service.prepare(request, {service.model().eos_tokens().empty() ? 0 : service.model().eos_tokens().front()}, server.caller(*call));
  if (!prepared.ok()) return call->fail(prepared.error());
  auto started = service.start(std::move(*prepared), std::make_shared<Probe>(call));
  if (!started.ok()) return call->fail(started.error());
  call->own(*started);
}

void get_metrics(Server& server, const std::shared_ptr<Call>& call) {
  call->respond(200, metrics_text(server.metric_sources(), server.settings().metrics_compat == "vllm"),
                "text/plain; version=0.0.4; charset=utf-8");
}

void get_version(Server& server, const std::shared_ptr<Call>& call) {
  call->respond(200, json::serialize(json::object{{"version", server.options().version}}));
}

void get_server_info(Server& server, const std::shared_ptr<Call>& call) {
  const ServedModel& model = server.service().model();
  json::object settings;
  for (const Setting& s : all_settings())
    if (s.name != "api-key") settings[s.name] = text_of(server.settings(), s);
  const MetricSources m = server.metric_sources();
  const sched::Metrics& e = m.engine.scheduler;
  json::object info{
      {"version", server.options().version},
      {"model", model.name()},
      {"model_path", model.folder().string()},
      {"max_model_len", model.context_tokens()},
      {"vocabulary", model.tokenizer().size()},
      {"settings", std::move(settings)},
      {"tokens",
       json::object{{"matched_kv", e.tokens_matched_kv}, {"matched_state", e.tokens_matched_state}, {"recomputed", e.tokens_recomputed}}},
      {"speculation", speculation_of(e.speculation)},
      // Where clients of SGLang look for it.
      {"internal_states", json::array{json::object{{"avg_spec_accept_length", e.speculation.accepted_length()}}}},
      {"running", e.prefilling + e.decoding},
      {"waiting", e.waiting}};
  std::string body = json::serialize(info);
  if (const fleet::Post* post = server.options().fleet) {
    body.pop_back();
    body += ",\"fleet\":{" + post->json() + "}}";
  }
  if (!server.options().description.empty()) {
    body.pop_back();
    body += "," + server.options().description + "}";
  }
  call->respond(200, std::move(body));
}

void post_flush_cache(Server& server, const std::shared_ptr<Call>& call) {
  // It waits for the engine's thread.
  server.prepare(call, [&server, call] {
    Service& service = server.service();
    if (service.open_choices() > 0)
      return call->fail({.status = 409, .code = "busy", .message = "Requests run or wait; the cache is emptied when there are none."});
    call->respond(200, json::serialize(json::object{{"pages", service.engine().flush_cache()}}));
  });
}

}  // namespace baton::server
