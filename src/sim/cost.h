// What cycles take on the device of an instance, where only time is simulated: from a plan's counts and ceilings, or fitted to runs that
// were measured.
//
// Threads: values and pure functions; may be shared once made.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::sim {

// What a cycle has to do. Tokens are the model's, not the simulation's.
struct CycleLoad {
  double decoding = 0;        // sequences with a row of a drawn token
  double decode_context = 0;  // tokens before these rows, together
  double prompt_tokens = 0;   // rows of prompts
  double prompt_past = 0;     // tokens before each of these rows, together
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Of `cycles` cycles, one behind the other, with these decoding sequences in each; the rows of prompts are run once.
  virtual double seconds(const CycleLoad& load, double cycles) const = 0;
  // From a client's request to its place in the queue, without the network.
  virtual double request_seconds() const { return 0; }
};

// A sum of costs of a cycle, a row, and a row's context.
struct LinearCost final : CostModel {
  double seconds(const CycleLoad& load, double cycles) const override;
  double request_seconds() const override { return at(kRequest); }

  // Seconds, each.
  enum Part : size_t { kCycle, kDecodeRow, kDecodeContext, kPromptRow, kPromptPast, kRequest, kParts };
  double at(Part part) const { return parts[part]; }
  std::array<double, kParts> parts{};
};
const char* name_of(LinearCost::Part part);
// A JSON object with the names of the parts, in microseconds.
std::string json_of(const LinearCost& cost);
Result<LinearCost> parse_cost(std::string_view json, const std::string& where);

// Functions that take long, computed once at the points of a grid.
class GridCost final : public CostModel {
 public:
  struct Functions {
    std::function<double(double requests, double context)> decode;  // a cycle; `context`: of one, in the mean
    std::function<double(double rows, double past)> prompt;         // a chunk; `past`: before a row, in the mean
    double most_requests = 1, most_rows = 1, most_context = 1;      // beyond them it goes on in a straight line
  };
  explicit GridCost(const Functions& functions);
  double seconds(const CycleLoad& load, double cycles) const override;

 private:
  // Points from 1 on, each a half more than the one before it; values between them on planes.
  class Grid {
   public:
    Grid(const std::function<double(double, double)>& f, double most_x, double most_y);
    double at(double x, double y) const;

   private:
    std::vector<double> x_, y_, values_;
  };
  Grid decode_, prompt_;
};

}  // namespace baton::sim
