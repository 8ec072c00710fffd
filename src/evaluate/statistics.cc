#include "evaluate/statistics.h"

#include <algorithm>
#include <cmath>

namespace baton::evaluate {

Interval wilson(int64_t right, int64_t count) {
  if (count <= 0) return {};
  constexpr double z = 1.959963984540054;  // the normal distribution's 97.5 % point
  const auto n = static_cast<double>(count);
  const double share = static_cast<double>(right) / n;
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double reach = z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, centre - reach), std::min(1.0, centre + reach)};
}

double mcnemar(int64_t only_first, int64_t only_second) {
  const int64_t n = only_first + only_second;
  if (n == 0) return 1;
  // Twice the lower tail of a fair coin thrown n times; in logarithms, as 2^-n soon is too small.
  const auto log_choose = [n](int64_t k) {
    return std::lgamma(static_cast<double>(n) + 1) - std::lgamma(static_cast<double>(k) + 1) - std::lgamma(static_cast<double>(n - k) + 1);
  };
  double tail = 0;
  for (int64_t k = 0; k <= std::min(only_first, only_second); ++k) tail += std::exp(log_choose(k) - static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

}  // namespace baton::evaluate
