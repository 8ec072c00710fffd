#include "load/arrivals.h"

#include <boost/random/gamma_distribution.hpp>
#include <boost/random/mersenne_twister.hpp>
#include <cmath>

namespace baton::load {

std::vector<double> arrivals(int64_t count, const ArrivalOptions& o) {
  boost::random::mt19937_64 random(o.seed ^ 0x6172726976616CULL);
  std::vector<double> out;
  double at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) {
      const double part = count > 2 ? static_cast<double>(i - 1) / static_cast<double>(count - 2) : 0;
      double rate = o.rate;
      if (o.ramp == Ramp::kLinear) rate = o.start_rate + (o.end_rate - o.start_rate) * part;
      if (o.ramp == Ramp::kExponential) rate = o.start_rate * std::pow(o.end_rate / o.start_rate, part);
      at += std::isinf(o.burstiness) ? 1 / rate : boost::random::gamma_distribution<>(o.burstiness, 1 / (rate * o.burstiness))(random);
    }
    out.push_back(at);
  }
  return out;
}

}  // namespace baton::load
