#include "evaluate/statistics.h"

#include <gtest/gtest.h>

namespace baton::evaluate {
namespace {

// Figures worked out apart, from the formulas in textbooks.
TEST(Statistics, WilsonsInterval) {
  EXPECT_NEAR(wilson(95, 100).low, 0.88825, 1e-4);
  EXPECT_NEAR(wilson(95, 100).high, 0.97846, 1e-4);
  EXPECT_NEAR(wilson(5, 10).low, 0.23659, 1e-4);
  EXPECT_NEAR(wilson(5, 10).high, 0.76341, 1e-4);
  EXPECT_NEAR(wilson(20, 20).low, 0.83887, 1e-4);
  EXPECT_EQ(wilson(20, 20).high, 1);
  EXPECT_EQ(wilson(0, 20).low, 0);
  EXPECT_EQ(wilson(0, 0).low, 0);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

TEST(Statistics, McNemarsTest) {
  EXPECT_EQ(mcnemar(0, 0), 1);
  EXPECT_EQ(mcnemar(3, 3), 1);
  EXPECT_NEAR(mcnemar(0, 6), 2.0 / 64, 1e-12);
  EXPECT_NEAR(mcnemar(6, 0), 2.0 / 64, 1e-12);
  EXPECT_NEAR(mcnemar(1, 9), 2 * 11.0 / 1024, 1e-12);
  EXPECT_LT(mcnemar(0, 5000), 1e-300);
  EXPECT_NEAR(mcnemar(2480, 2520), 0.5815, 1e-3);
}

}  // namespace
}  // namespace baton::evaluate
