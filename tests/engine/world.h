// An engine over a small checkpoint, and what requests got from it to the bit, for tests that compare.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/gathering_sink.h"
#include "engine/local_engine.h"
#include "model/fixture.h"

namespace baton::testing {

using engine::GatheringSink;
using engine::LocalEngine;
using engine::LocalOptions;
using sched::RequestSpec;

// For the golden checkpoints, in float: sequences of at most 512 tokens, small chunks, a snapshot at every page.
inline LocalOptions small_options(int32_t running) {
  LocalOptions o;
  o.backend = {.threads = 2, .isa = cpu::detect_isa()};
  o.numerics.activation = DType::kF32;
  o.context_tokens = 512;
  o.running = running;
  o.memory_bytes = int64_t{1} << 30;
  o.pool_tokens = 512 * running;
  o.snapshots = 16;
  o.prefill_tokens = 256;
  o.growth_tokens = 64;
  o.snapshot_tokens = 64;
  return o;
}

// Every third token, another third at each step; over after a hundred.
class ThirdForm final : public engine::Constraint {
 public:
  explicit ThirdForm(int64_t vocabulary) : vocabulary_(vocabulary) {}
  size_t mask_words() const override { return static_cast<size_t>((vocabulary_ + 31) / 32); }
  Result<Next> next(std::span<uint32_t> mask) override {
    if (told_ == 100) return Next::kOver;
    if (told_ % 7 == 6) return Next::kAny;
    std::fill(mask.begin(), mask.end(), 0);
    for (int64_t t = told_ % 3; t < vocabulary_; t += 3) mask[static_cast<size_t>(t / 32)] |= 1U << t % 32;
    return Next::kSome;
  }
  Status accept(int32_t token) override {
    EXPECT_TRUE(told_ % 7 == 6 || token % 3 == told_ % 3);
    ++told_;
    return {};
  }
  Status rollback(size_t tokens) override {
    told_ -= static_cast<int64_t>(tokens);
    return {};
  }
  Result<std::unique_ptr<Constraint>> fork() const override { return std::unique_ptr<Constraint>(new ThirdForm(*this)); }

 private:
  int64_t vocabulary_;
  int64_t told_ = 0;
};

// Log-probabilities of the whole vocabulary's best few stand for the logits: they are functions of all of them.
constexpr int32_t kLogprobs = 8;

struct Answer {
  std::vector<std::vector<int32_t>> tokens;  // by choice
  std::vector<std::vector<uint32_t>> bits;   // likewise: of the tokens' log-probabilities and of the best few
  std::vector<sched::Usage> usage;

  bool operator==(const Answer& o) const { return tokens == o.tokens && bits == o.bits; }
};

inline Answer answer_of(const GatheringSink& sink) {
  Answer a;
  for (const GatheringSink::Choice& c : sink.choices()) {
    a.tokens.push_back(c.tokens);
    auto& bits = a.bits.emplace_back();
    const auto add = [&bits](float f) {
      uint32_t u = 0;
      std::memcpy(&u, &f, sizeof u);
      bits.push_back(u);
    };
    for (const float f : c.logprobs) add(f);
    for (const auto& top : c.top)
      for (const ops::TokenLogprob& t : top) {
        bits.push_back(static_cast<uint32_t>(t.token));
        add(t.logprob);
      }
    a.usage.push_back(c.usage);
  }
  return a;
}

struct World {
  std::unique_ptr<LocalEngine> local;

  explicit World(const LocalOptions& options, const std::string& folder) {
    const auto checkpoint = model::Checkpoint::open(golden_dir(folder));
    if (!checkpoint.ok()) throw std::runtime_error(checkpoint.error().message);
    auto opened = LocalEngine::open(*checkpoint, options);
    if (!opened.ok()) throw std::runtime_error(opened.error().message);
    local = std::move(*opened);
  }
  bool constrain = false;  // every second request

  std::vector<Answer> ask_all(const std::vector<RequestSpec>& specs) {
    std::vector<std::unique_ptr<GatheringSink>> sinks;
    for (const RequestSpec& s : specs) {
      sinks.push_back(std::make_unique<GatheringSink>(s.choices, true));
      auto form = constrain && s.sampling.seed % 2 == 0 ? std::make_unique<ThirdForm>(local->model().config().vocab_size) : nullptr;
      EXPECT_TRUE(local->engine().submit(s, *sinks.back(), std::move(form)).ok());
    }
    std::vector<Answer> answers;
    for (const auto& sink : sinks) {
      sink->wait();
      EXPECT_FALSE(sink->refusal()) << sink->refusal()->message;
      for (const GatheringSink::Choice& c : sink->choices()) EXPECT_EQ(c.ends, 1);
      answers.push_back(answer_of(*sink));
    }
    return answers;
  }
  Answer ask(const RequestSpec& spec) { return ask_all({spec}).front(); }
  sched::Metrics metrics() {
    local->engine().wait_idle();
    return local->engine().metrics().scheduler;
  }
};

// Prompts of several lengths, of which some begin alike; every third is sampled, every fourth with penalties, too.
inline std::vector<RequestSpec> make_specs(size_t count, uint32_t seed, int64_t v) {
  std::mt19937 random(seed);
  std::vector<int32_t> stem(200);
  for (int32_t& t : stem) t = static_cast<int32_t>(random() % static_cast<uint64_t>(v));
  std::vector<RequestSpec> out(count);
  for (size_t i = 0; i < count; ++i) {
    RequestSpec& s = out[i];
    if (i % 2 == 1) s.prompt.assign(stem.begin(), stem.begin() + 1 + static_cast<std::ptrdiff_t>(random() % stem.size()));
    const size_t own = 1 + random() % 90;
    for (size_t k = 0; k < own; ++k) s.prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(v)));
    s.max_tokens = 8 + static_cast<int64_t>(random() % 90);
    s.sampling.logprobs = kLogprobs;
    s.sampling.seed = seed * 1000 + i;
    if (i % 3 == 0) s.sampling.temperature = 0.9F;
    if (i % 3 == 0) s.sampling.top_p = 0.95F;
    if (i % 4 == 0) s.sampling.presence_penalty = 0.5F;
    if (i % 4 == 0) s.sampling.repetition_penalty = 1.2F;
  }
  return out;
}

inline void expect_equal(const std::vector<Answer>& got, const std::vector<Answer>& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].tokens, wanted[i].tokens) << what << ", request " << i;
    ASSERT_EQ(got[i].bits, wanted[i].bits) << what << ", request " << i;
  }
}

// Three turns of a conversation each, with prompts of at most 100 tokens, five tokens between an answer and what follows. Every answer is
// that of `wanted_of(requests)`, and every turn starts behind the last page edge of the one before.
template <class Wanted>
void converse(World& w, std::vector<RequestSpec> turns, Wanted wanted_of) {
  for (RequestSpec& s : turns) {
    s.prompt.resize(std::min<size_t>(s.prompt.size(), 100));
    s.max_tokens = 120;
  }
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<Answer> wanted = wanted_of(turns);
    const std::vector<Answer> got = w.ask_all(turns);
    expect_equal(got, wanted, fmt::format("turn {}", turn).c_str());
    for (size_t i = 0; i < turns.size(); ++i) {
      RequestSpec& s = turns[i];
      const auto before = std::ssize(s.prompt);
      if (turn > 0) {
        EXPECT_EQ(got[i].usage[0].cached_tokens, (before - 5 - 1) / 64 * 64) << "turn " << turn << " of conversation " << i;
      }
      s.prompt.insert(s.prompt.end(), got[i].tokens[0].begin(), got[i].tokens[0].end());
      for (int32_t k = 0; k < 5; ++k) s.prompt.push_back(k);
    }
    for (RequestSpec& s : turns) s.max_tokens = std::min<int64_t>(120, 511 - std::ssize(s.prompt));
  }
}

}  // namespace baton::testing
