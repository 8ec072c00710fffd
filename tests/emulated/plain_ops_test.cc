// The plain bodies of every CUDA op, run on the CPU from their own sources and compared with the CPU backend.
#include <gtest/gtest.h>

#include "backend/pair.h"
#include "base/test_seed.h"
#include "ops/cuda/open.h"

namespace baton {
namespace {

void expect_alike(void (*check)(pair::Pair&)) {
  const auto device = cuda::open_device({.host_visible = true, .plain = true});
  ASSERT_TRUE(device.ok());
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("BATON_SEED={}", seed));
  pair::Pair both(*device->backend, seed, cpu::Isa::kPlain);
  check(both);
  EXPECT_FALSE(both.findings().empty());
  for (const pair::Finding& f : both.findings()) EXPECT_TRUE(f.ok()) << f.name << ": " << f.error << ", allowed " << f.bound;
}

TEST(PlainOps, Dense) { expect_alike(pair::check_dense); }
TEST(PlainOps, Experts) { expect_alike(pair::check_experts); }
TEST(PlainOps, Streams) { expect_alike(pair::check_streams); }
TEST(PlainOps, Kda) { expect_alike(pair::check_kda); }
TEST(PlainOps, Sparse) { expect_alike(pair::check_sparse); }
TEST(PlainOps, Sampling) { expect_alike(pair::check_sampling); }
TEST(PlainOps, Drafter) { expect_alike(pair::check_drafter); }

}  // namespace
}  // namespace baton
