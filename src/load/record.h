// What happened to one request. Times are seconds since the run began.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton::load {

struct Record {
  int64_t conversation = 0, turn = 0;
  int64_t asked_input = 0, asked_output = 0;  // tokens; input 0 where only the server can count it

  double intended = 0;              // when it should have been sent; latencies count from here
  double sent = 0;                  // when it was handed to its connection, or that began to connect
  double end = 0;                   // its answer was complete, or had failed
  std::vector<double> chunks = {};  // arrivals of pieces that hold text

  int64_t input_tokens = -1, cached_tokens = -1, output_tokens = -1;  // as the server counts them; -1: it does not say
  std::string finish = {};                                            // "length", "stop", ...

  // Empty for a good answer; otherwise a kind ("http 429", "cut short", ...) and what was said.
  std::string failure = {}, message = {};

  bool good() const { return failure.empty(); }
  // Of a good answer. Tokens that the server does not count are taken to be one a piece.
  int64_t tokens() const { return output_tokens >= 0 ? output_tokens : static_cast<int64_t>(chunks.size()); }
  double ttft() const { return chunks.front() - intended; }
  double e2e() const { return chunks.back() - intended; }
  // Between the first piece and the last, by the tokens behind it, as vLLM's and SGLang's clients do. An answer in one piece has none.
  bool has_tpot() const { return chunks.size() > 1 && tokens() > 1; }
  double tpot() const { return (chunks.back() - chunks.front()) / static_cast<double>(tokens() - 1); }
};

// What one run saw beside its records.
struct Run {
  std::vector<Record> records = {};
  int64_t unsent = 0;                  // turns that were not sent: one before them failed, or the run was stopped
  bool stopped = false;                // before all was sent, by its time limit or its user
  std::vector<float> read_lag_s = {};  // from the kernel's receipt of bytes to their reading, where it says when that was
  int64_t connections = 0;             // opened
  int64_t most_at_once = 0;            // requests
  double processor_s = 0;              // of this process
};

}  // namespace baton::load
