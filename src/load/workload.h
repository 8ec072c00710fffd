// What is asked: conversations of one turn or several, made from lengths and a seed. The same options and seed make the same requests.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "load/prompt.h"

namespace baton::load {

struct Turn {
  Prompt prompt = {};  // the whole of it, with what was said before
  int64_t output_tokens = 0;
  double delay_s = 0;  // from the end of the turn before it
};

struct Conversation {
  std::vector<Turn> turns = {};
  std::optional<double> arrival_s = {};  // where a trace says when it came
};

using Workload = std::vector<Conversation>;

// Lengths are drawn uniformly from [low * length, high * length], both ends included, and are at least 1.
struct Range {
  double low = 1, high = 1;
};

struct RandomOptions {
  int64_t prompts = 1000;
  int64_t input = 1024, output = 128;
  int64_t prefix = 0;  // tokens before `input` that all prompts share
  Range range = {};
  uint64_t seed = 0;
};
Workload random_prompts(const RandomOptions& options);

struct SharedPrefixOptions {
  int64_t groups = 64, per_group = 16;
  int64_t prefix = 2048, question = 128, output = 256;
  int64_t turns = 1;
  double zipf = 0;       // 0: every group `per_group` times; else group k is asked in proportion to k^-zipf, drawn anew for each prompt
  bool ordered = false;  // group by group; otherwise shuffled
  Range range = {};      // of question and output
  uint64_t seed = 0;
};
// groups * per_group conversations. With several turns each holds the question, a drawn answer of `output` tokens and the next question.
Workload shared_prefixes(const SharedPrefixOptions& options);

// Agents: a system prompt with tools that all share, a task of their own, and turns that each add the model's call and a tool's result.
struct AgentOptions {
  int64_t agents = 32, turns = 8;
  int64_t system = 4096, task = 256, result = 512, output = 128;
  double delay_s = 0;  // of the tool, in the mean; drawn from an exponential distribution
  Range range = {};    // of task, result and output
  uint64_t seed = 0;
};
Workload agents(const AgentOptions& options);

int64_t turns_of(const Workload& workload);
// Over all turns, how much of the prompts an earlier prompt begins with, at best: an endless cache and answers in the order of the list.
double shared_share(const Workload& workload);

}  // namespace baton::load
