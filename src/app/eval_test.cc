// baton eval as a user meets it: a checkpoint in process, a server that answers rightly, wrongly and not at all, and comparisons.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <boost/json.hpp>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/file.h"
#include "evaluate/report.h"
#include "http/listener.h"
#include "model/test_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using evaluate::Question;

const std::string kSets = BATON_TEST_DATA "/eval/";

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class Eval : public testing::Test {
 protected:
  // `arguments` as in a shell; no file name here needs quotes.
  Outcome run(const std::string& arguments, const std::string& environment = "") {
    const std::string command = environment + " " BATON_PROGRAM " eval " + arguments + " >" + path(".out") + " 2>" + path(".err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, folder_.read(".out"), folder_.read(".err")};
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  evaluate::Report report(const std::string& name) const { return evaluate::parse_report(folder_.read(name), name).value(); }

  // Random weights with the small tokenizer: it answers nonsense, but always the same.
  std::string random_model(int64_t vocabulary = 2048) {
    json::value config = json::parse(*read_file(BATON_TEST_DATA "/golden/mtp/config.json", 1 << 20));
    config.at("text_config").as_object()["vocab_size"] = vocabulary;
    folder_.write("config.json", json::serialize(config));
    const std::string model = path("model");
    const std::string command =
        BATON_PROGRAM " synth --config " + path("config.json") + " --seed 1 " + model + " >" + path(".out") + " 2>" + path(".err");
    EXPECT_EQ(std::system(command.c_str()), 0) << folder_.read(".err");
    for (const auto& file : fs::directory_iterator(BATON_SMALL_TOKENIZER)) fs::copy(file.path(), fs::path(model) / file.path().filename());
    return model;
  }

  model::TestFolder folder_;
};

TEST_F(Eval, AsksACheckpointAndComparesTwoResults) {
  const std::string model = random_model();
  const std::string ask = "--model " + model + " --data " + kSets + "arithmetic.jsonl " + kSets + "tools.jsonl " + kSets +
                          "chat.jsonl --limit 5 --max-tokens 8";
  const Outcome one = run(ask + " --json " + path("one.json"));
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.err, "");
  for (const char* part : {"arithmetic", "tools", "chat", "all", "15 questions in"})
    EXPECT_NE(one.out.find(part), std::string::npos) << part;
  const evaluate::Report r = report("one.json");
  ASSERT_EQ(r.outcomes.size(), 15U);
  for (const evaluate::Outcome& o : r.outcomes) {
    EXPECT_EQ(o.failure, "");
    EXPECT_EQ(o.right, false) << o.id;
    EXPECT_GT(o.prompt_tokens, 10);
    EXPECT_GE(o.completion_tokens, 1);
  }
  EXPECT_EQ(one.out.find("tokens a cycle"), std::string::npos) << one.out;
  // What is generated depends neither on how many questions run at once nor on the cache nor on drafts.
  const Outcome drafting =
      run(ask + " --parallel 1 --chunk 7 --speculative-algorithm NEXTN --speculative-num-steps 3 --json " + path("two.json"));
  ASSERT_EQ(drafting.exit_code, 0) << drafting.err;
  EXPECT_NE(drafting.out.find("tokens a cycle"), std::string::npos) << drafting.out;
  EXPECT_NE(drafting.out.find("accepted length"), std::string::npos) << drafting.out;
  for (const evaluate::Outcome& o : report("two.json").outcomes) {
    EXPECT_TRUE(o.drafted_tokens > 0 || o.completion_tokens <= 2) << o.id;
    EXPECT_LE(o.accepted_tokens, std::min(o.drafted_tokens, o.completion_tokens - 1)) << o.id;
  }
  const Outcome same = run("--compare " + path("one.json") + " " + path("two.json"));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(same.out.find("same text"), std::string::npos);
  EXPECT_NE(same.out.rfind("100.0 %"), std::string::npos) << same.out;
  for (size_t i = 0; i < r.outcomes.size(); ++i) EXPECT_EQ(report("two.json").outcomes[i].answer.reasoning, r.outcomes[i].answer.reasoning);

  const Outcome low = run(ask + " --at-least 0.9");
  EXPECT_EQ(low.exit_code, 1);
  EXPECT_NE(low.out.find("arithmetic"), std::string::npos);
  EXPECT_NE(low.err.find("0 of 15 answers are right"), std::string::npos) << low.err;
  // A prompt that does not fit is reported, the others are answered.
  const Outcome long_answers = run("--model " + model + " --data " + kSets + "copy.jsonl --limit 3 --max-tokens 100000");
  EXPECT_EQ(long_answers.exit_code, 1);
  EXPECT_NE(long_answers.err.find("3 of 3 questions were not answered"), std::string::npos) << long_answers.err;
  EXPECT_NE(long_answers.err.find("lower --max-tokens"), std::string::npos) << long_answers.err;
}

TEST_F(Eval, SaysWhatIsWrong) {
  folder_.write("broken.jsonl", "{\"question\": \"x\"}\n");
  const std::string set = kSets + "copy.jsonl";
  for (const std::string& usage : std::vector<std::string>{
           "", "--data " + set, "--model x", "--model x --base-url y --data " + set, "--compare a", "--compare a b --data " + set,
           "--model x --data " + set + " --temperature -1", "--model x --data " + set + " --served-model y"})
    EXPECT_EQ(run(usage).exit_code, 2) << usage;
  const auto fails = [&](const std::string& arguments, const std::string& part) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.exit_code, 1) << arguments;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.err.starts_with("baton: ")) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << part << " in " << o.err;
  };
  fails("--model x --data " + path("none.jsonl"), "none.jsonl");
  fails("--model x --data " + path("broken.jsonl"), "broken.jsonl:1");
  fails("--model " + path("none") + " --data " + set, "none");
  fails("--model " + random_model(2040) + " --data " + set, "do not belong together");
  fails("--base-url http://127.0.0.1:1/v1 --data " + set, "http://127.0.0.1:1/v1");
  fails("--base-url ftp://x --data " + set, "ftp");
  fails("--compare " + path("none.json") + " " + path("broken.jsonl"), "none.json");
  fails("--compare " + path("broken.jsonl") + " " + path("broken.jsonl"), "baton eval --json");
  fails("--model x --data " + set + " --json " + path("none/out.json"), "/none/");
}

// Answers the questions of sets rightly, but for those whose number it is told to treat otherwise.
class Server {
 public:
  explicit Server(const std::vector<Question>& questions) {
    for (const Question& q : questions) known_[json::serialize(q.request.at("messages"))] = &q;
    listener_ = http::Listener::start({}, [this](const std::shared_ptr<http::Exchange>& e) { handle(*e); }).value();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(listener_->port()); }

  std::string wrong, broken;  // ids of questions
  std::atomic<int> busy = 0;  // how many requests are turned away first
  std::atomic<int> asked = 0;

 private:
  void handle(http::Exchange& exchange) {
    const http::Request& request = exchange.request();
    if (request.header("Authorization") != "Bearer secret")
      return exchange.respond({.status = 401, .body = R"({"error":{"message":"no key"}})"});
    if (request.path == "/v1/models") return exchange.respond({.body = R"({"data": [{"id": "the-model"}]})"});
    if (busy-- > 0) return exchange.respond({.status = 503, .body = "{}"});
    ++asked;
    const json::value body = json::parse(request.body);
    EXPECT_EQ(body.at("model").as_string(), "the-model");
    EXPECT_EQ(body.at("max_tokens").as_int64(), 99);
    const auto found = known_.find(json::serialize(body.at("messages")));
    ASSERT_NE(found, known_.end()) << request.body;
    const Question& q = *found->second;
    EXPECT_EQ(body.as_object().contains("tools"), q.request.contains("tools"));
    if (q.id == broken) return exchange.respond({.status = 500, .body = R"({"error":{"message":"out of luck"}})"});
    exchange.respond({.body = json::serialize(json::object{
                          {"choices", json::array{json::object{{"finish_reason", "stop"}, {"message", message(q)}}}},
                          {"usage", json::object{{"prompt_tokens", 7},
                                                 {"completion_tokens", 3},
                                                 {"completion_tokens_details",
                                                  {{"accepted_prediction_tokens", 1}, {"rejected_prediction_tokens", 6}}}}}})});
  }
  json::object message(const Question& q) const {
    json::object m{{"role", "assistant"}, {"content", nullptr}, {"reasoning_content", "because"}};
    if (q.id == wrong) {
      m["content"] = "I do not know.";
    } else if (q.check == evaluate::Check::kTools) {
      json::array& calls = m["tool_calls"].emplace_array();
      for (const json::value& c : q.answer.as_array())
        calls.push_back({{"type", "function"}, {"function", {{"name", c.at("name")}, {"arguments", json::serialize(c.at("arguments"))}}}});
    } else {
      m["content"] = q.answer.is_string() ? q.answer : json::value(json::serialize(q.answer));
    }
    return m;
  }

  std::map<std::string, const Question*> known_;
  std::unique_ptr<http::Listener> listener_;
};

TEST_F(Eval, AsksAServer) {
  std::vector<std::string> files;
  for (const char* name : {"arithmetic", "tools", "json", "recall", "chat"}) files.push_back(kSets + name + ".jsonl");
  const std::vector<Question> questions = evaluate::read_question_sets(files, 20).value();
  Server server(questions);
  server.busy = 2;
  std::string ask = " --limit 20 --max-tokens 99 --parallel 5 --data";
  for (const std::string& f : files) ask += " " + f;
  const std::string key = "OPENAI_API_KEY=secret";
  const Outcome all = run("--base-url " + server.url() + ask + " --at-least 1 --json " + path("all.json"), key);
  EXPECT_EQ(all.exit_code, 0) << all.err << all.out;
  EXPECT_EQ(server.asked, 100);
  const evaluate::Report right = report("all.json");
  EXPECT_EQ(right.outcomes[0].answer.reasoning, "because");
  EXPECT_EQ(right.outcomes[0].prompt_tokens, 7);
  EXPECT_EQ(right.outcomes[0].drafted_tokens, 7);
  EXPECT_EQ(right.outcomes[0].accepted_tokens, 1);
  EXPECT_NE(all.out.find("2.00\n"), std::string::npos) << all.out;  // two tokens in the one cycle behind the first
  EXPECT_NE(all.out.find("8192"), std::string::npos) << all.out;

  server.wrong = questions[3].id;
  server.broken = questions[50].id;
  const Outcome some = run("--base-url " + server.url() + "/v1/" + ask + " --json " + path("some.json"), key);
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_NE(some.err.find("1 of 100 questions were not answered; the first, " + questions[50].id + ": status 500: out of luck"),
            std::string::npos)
      << some.err;
  EXPECT_EQ(report("some.json").outcomes[3].right, false);
  EXPECT_EQ(report("some.json").failed(), 1);
  const Outcome compared = run("--compare " + path("all.json") + " " + path("some.json"));
  EXPECT_NE(compared.out.find("1 questions left out"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("right in one only: " + questions[3].id), std::string::npos) << compared.out;

  const Outcome locked = run("--base-url " + server.url() + ask, "OPENAI_API_KEY=");
  EXPECT_EQ(locked.exit_code, 1);
  EXPECT_NE(locked.err.find("status 401: no key"), std::string::npos) << locked.err;
}

}  // namespace
}  // namespace baton
