// Every drafter beside no drafter, over many prompts: cold and warm, alone and 32 at once, greedy and sampled, with every filter, penalty
// and bias, and held to a form; and with forced patterns of acceptance. Tokens and bits of log-probabilities are the same.
//
// A few prompts by default. BATON_PROMPTS sets how many; BATON_MODEL and BATON_DRAFTER are folders of another checkpoint and of its DFlash2
// drafter, BATON_PROMPT_FILE a file with a list of ids a line to take turns with.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/random.h"
#include "base/test_seed.h"
#include "engine/scripted_drafter.h"
#include "engine/world.h"

namespace baton::testing {
namespace {

std::string setting(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

constexpr int32_t kTogether = 32;

struct Matrix {
  std::string folder = setting("BATON_MODEL", golden_dir("mtp"));
  std::string drafter = setting("BATON_DRAFTER", BATON_TEST_DATA "/drafters/dflash2");
  size_t prompts = static_cast<size_t>(std::stoll(setting("BATON_PROMPTS", "2")));
  int64_t vocabulary = model::Checkpoint::open(folder)->config().vocab_size;

  LocalOptions options(int32_t running) const {
    LocalOptions o;
    o.backend = {.threads = 2, .isa = cpu::detect_isa()};
    o.numerics.activation = DType::kF32;
    o.context_tokens = 1024;
    o.running = running;
    o.pool_tokens = 1024 * running;
    o.snapshots = 2 * running + 8;  // a prompt's and an answer's of each
    o.prefill_tokens = 256;
    o.snapshot_tokens = 64;
    return o;
  }

  // Four requests a prompt: greedy, sampled, with every filter, and held to a form (those with an even seed, see World::constrain).
  std::vector<RequestSpec> requests() const {
    const std::vector<std::vector<int32_t>> given = from_file(setting("BATON_PROMPT_FILE", ""));
    std::vector<RequestSpec> all;
    for (const RequestSpec& made : make_specs(prompts, 41, vocabulary)) {
      RequestSpec s = made;
      const size_t prompt = all.size() / 4;
      if (!given.empty()) s.prompt = given[prompt % given.size()];
      s.max_tokens = std::min<int64_t>(s.max_tokens, 64);
      for (size_t kind = 0; kind < 4; ++kind) {
        s.sampling = {};
        s.sampling.logprobs = kLogprobs;
        s.sampling.seed = 2 * (1000 * prompt + kind) + (kind == 3 ? 0 : 1);
        if (kind > 0) s.sampling.temperature = 0.6F + 0.2F * static_cast<float>(prompt % 4);
        if (kind == 2) with_filters(s.sampling, prompt);
        all.push_back(s);
      }
    }
    return all;
  }

 private:
  void with_filters(sched::Sampling& s, size_t prompt) const {
    s.top_p = 0.9F;
    s.top_k = 40;
    s.min_p = 0.01F;
    s.repetition_penalty = 1.1F;
    s.frequency_penalty = 0.2F;
    s.presence_penalty = 0.3F;
    s.logit_bias = {{static_cast<int32_t>(prompt % static_cast<size_t>(vocabulary)), 2.0F}, {3, -4.0F}};
  }
  static std::vector<std::vector<int32_t>> from_file(const std::string& name) {
    std::vector<std::vector<int32_t>> all;
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      std::replace(line.begin(), line.end(), ',', ' ');
      std::istringstream words(line);
      std::vector<int32_t> ids{std::istream_iterator<int32_t>(words), {}};
      if (!ids.empty()) all.push_back(std::move(ids));
    }
    return all;
  }
};

// In groups of `running`, each asked twice: the second time from what the first left behind.
struct Asked {
  std::vector<Answer> cold, warm;
  int64_t from_state = 0;  // prompt tokens that were found, the second time
  speculate::Metrics speculation;
};

Asked ask_twice(const Matrix& m, const LocalOptions& options, const std::vector<RequestSpec>& all) {
  World w(options, m.folder);
  w.constrain = true;
  Asked asked;
  for (size_t begin = 0; begin < all.size(); begin += static_cast<size_t>(options.running)) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<RequestSpec> group(from, from + std::min<std::ptrdiff_t>(options.running, all.end() - from));
    for (Answer& a : w.ask_all(group)) asked.cold.push_back(std::move(a));
    const int64_t before = w.metrics().tokens_matched_state;
    for (Answer& a : w.ask_all(group)) asked.warm.push_back(std::move(a));
    asked.from_state += w.metrics().tokens_matched_state - before;
  }
  asked.speculation = w.metrics().speculation;
  return asked;
}

std::vector<Answer> without_drafts(const Matrix& m, const std::vector<RequestSpec>& all) {
  World w(m.options(1), m.folder);
  w.constrain = true;
  std::vector<Answer> answers;
  for (RequestSpec s : all) {
    s.cache_prompt = false;
    answers.push_back(w.ask(s));
  }
  return answers;
}

int64_t tokens_of(const std::vector<Answer>& answers) {
  int64_t n = 0;
  for (const Answer& a : answers) n += std::ssize(a.tokens[0]);
  return n;
}

TEST(SpeculationMatrix, EveryDrafterColdAndWarmAloneAndTogether) {
  const Matrix m;
  const std::vector<RequestSpec> all = m.requests();
  const std::vector<Answer> wanted = without_drafts(m, all);
  std::printf("%zu prompts, %zu requests, %lld tokens\n", m.prompts, all.size(), static_cast<long long>(tokens_of(wanted)));
  for (const std::string drafter : {"NEXTN", "DFLASH"})
    for (const int32_t running : {1, kTogether}) {
      LocalOptions o = m.options(running);
      o.speculation.algorithm = drafter;
      o.speculation.steps = 7;
      if (drafter == "DFLASH") o.speculation.draft_model = m.drafter;
      const Asked got = ask_twice(m, o, all);
      const std::string what = fmt::format("{}, {} at once", drafter, running);
      expect_equal(got.cold, wanted, (what + ", cold").c_str());
      expect_equal(got.warm, wanted, (what + ", warm").c_str());
      if (HasFatalFailure()) return;
      EXPECT_GT(got.from_state, 0);
      EXPECT_GT(got.speculation.drafted, 0);
      std::printf("%s: all equal; accepted length %.2f, %lld prompt tokens warm\n", what.c_str(), got.speculation.accepted_length(),
                  static_cast<long long>(got.from_state));
    }
}

TEST(SpeculationMatrix, EveryPatternOfAcceptance) {
  const Matrix m;
  const std::vector<RequestSpec> all = m.requests();
  const std::vector<Answer> wanted = without_drafts(m, all);
  const uint32_t seed = test_seed();
  Script script;
  for (size_t i = 0; i < all.size(); ++i) {
    script.texts.push_back(all[i].prompt);
    script.seeds.push_back(all[i].sampling.seed);
    script.texts.back().insert(script.texts.back().end(), wanted[i].tokens[0].begin(), wanted[i].tokens[0].end());
  }
  const auto at_random = [seed](int32_t position) {
    return static_cast<int32_t>(philox(seed, {static_cast<uint32_t>(position), 0, 0, 0})[0] >> 1U);
  };
  speculate::Metrics together;
  for (int32_t right = 0; right <= 8; ++right) {  // 8: at random, and with no drafts at all in every fifth step
    script.right = [&, right](int32_t p, int32_t count) { return right < 8 ? std::min(right, count) : at_random(p) % (count + 1); };
    script.made = [&, right](int32_t p, int32_t count) { return right < 8 || at_random(p + 9999) % 5 > 0 ? count : 0; };
    LocalOptions o = m.options(kTogether);
    o.drafter = scripted(script);
    const Asked got = ask_twice(m, o, all);
    expect_equal(got.cold, wanted, fmt::format("{} right, cold", right).c_str());
    expect_equal(got.warm, wanted, fmt::format("{} right, warm", right).c_str());
    if (HasFatalFailure()) return;
    together.add(got.speculation);
  }
  for (size_t length = 1; length <= 8; ++length) EXPECT_GT(together.blocks_of[length], 0) << "no block of " << length << " came";
}

}  // namespace
}  // namespace baton::testing
