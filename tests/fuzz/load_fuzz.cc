// Any bytes as what the load generator, the planner and the simulator read: a trace, prompts written out, an event stream of a server, a
// result file, measured ops, costs of cycles. What is taken makes sense; an answer is the same however its bytes are cut. The first byte
// chooses what it is ('0' to '6'), the second how it is cut.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "load/answer_reader.h"
#include "load/comparison.h"
#include "load/trace.h"
#include "plan/measurements.h"
#include "sim/cost.h"

using namespace baton::load;  // NOLINT(google-build-using-namespace)

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const baton::Result<Workload>& w, bool trace) {
  if (!w.ok()) return require(w.error().message.find("FILE") != std::string::npos);
  require(!w->empty());
  double before = 0;
  for (const Conversation& c : *w) {
    require(c.turns.size() == 1 && c.turns.front().output_tokens > 0);
    if (!trace) continue;
    require(c.turns.front().prompt.tokens() > 0);
    for (const Stretch& s : c.turns.front().prompt.stretches) require(s.tokens > 0);
    if (!c.arrival_s) continue;
    require(std::isfinite(*c.arrival_s) && *c.arrival_s >= before);
    before = *c.arrival_s;
  }
}

Record read(int status, std::string_view bytes, std::mt19937& random, unsigned longest) {
  Record r;
  AnswerReader reader(r);
  double now = 1;
  while (!bytes.empty()) {
    const size_t n = longest == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 1 + random() % longest);
    reader.feed(status, bytes.substr(0, n), now);
    bytes.remove_prefix(n);
  }
  reader.end(status);
  return r;
}

void check_answer(int status, std::string_view bytes, std::mt19937& random, unsigned longest) {
  const Record whole = read(status, bytes, random, 0), cut = read(status, bytes, random, longest);
  // How much of a failed answer was read before it failed may depend on how it was cut.
  require(whole.good() == cut.good() && whole.failure == cut.failure);
  if (!whole.good()) return require(!whole.failure.empty());
  require(status == 200 && !whole.chunks.empty());
  require(whole.chunks.size() == cut.chunks.size() && whole.output_tokens == cut.output_tokens && whole.input_tokens == cut.input_tokens &&
          whole.cached_tokens == cut.cached_tokens && whole.finish == cut.finish);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::mt19937 random(data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  switch (static_cast<uint8_t>(data[0] - '0') % 7) {
    case 0: check(mooncake_trace(text, "FILE", {}), true); break;
    case 1: check(custom_prompts(text, "FILE", {}), false); break;
    case 2: check_answer(200, text, random, 1 + data[1] % 32); break;
    case 3: check_answer(503, text, random, 1 + data[1] % 32); break;
    case 4: {
      const auto figures = parse_figures(text, "FILE");
      if (!figures.ok()) return require(figures.error().message.find("FILE") != std::string::npos), 0;
      for (const Figures& f : *figures) text_of(compare(f, f), "a", "b");
      break;
    }
    case 5:
      if (const auto shares = baton::plan::parse_measurements(text, "FILE"); shares.ok())
        for (const auto& [op, share] : *shares) require(share > 0 && share <= 1);
      break;
    case 6:
      if (const auto cost = baton::sim::parse_cost(text, "FILE"); cost.ok())
        for (const double seconds : cost->parts) require(std::isfinite(seconds) && seconds >= 0);
      break;
  }
  return 0;
}
