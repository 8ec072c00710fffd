// Harness of the expert path: checks against the CPU and times whole stacks of layers.
//
// Shapes: ROWS:ROUTING[:VARIANT] (uniform, zipf), ROWS:route; for example 1024:uniform 32768:zipf:3
#include <cstring>
#include <memory>

#include "tests/gpu/moe_check.cuh"
#include "tests/gpu/moe_time.cuh"
#include "tests/gpu/route_check.cuh"

namespace baton::gpu_test {
namespace {

// Rows that a shorter batch shares with a longer one have the same bits.
bool check_batches(const char* name, int64_t rows, int64_t fewer) {
  MoeCase c{name, {rows, 4, 16, 8, 1024, 512}};
  const auto ids = make_routing(c);
  const auto weights = make_weights(c);
  const auto x = make_rows(c, 3);
  const DeviceWeights device = upload(c, random_weights(c));
  std::vector<bf16> out[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t m = i == 0 ? rows : fewer;
    const DeviceArray<int32_t> d_ids(std::vector<int32_t>(ids.begin(), ids.begin() + m * c.problem.choices));
    const DeviceArray<float> d_weights(weights);
    const DeviceArray<bf16> d_x(x);
    DeviceArray<bf16> d_out(m * c.problem.width);
    moe::ExpertPath path;
    path.problem = c.problem;
    path.problem.rows = m;
    path.config = moe::configure(path.problem);
    path.x = d_x.get();
    path.ids = d_ids.get();
    path.weights = d_weights.get();
    path.experts = device.view(c.problem.inner * c.problem.width);
    path.limit = c.limit;
    path.out = d_out.get();
    DeviceArray<uint8_t> workspace(moe::workspace_layout(path.problem, path.config).bytes);
    path.workspace = workspace.get();
    CUDA_OK(moe::run(path, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    out[i] = d_out.host();
  }
  const bool same = std::memcmp(out[0].data(), out[1].data(), out[1].size() * 2) == 0;
  std::printf("%-28s %s  rows %ld and %ld\n", name, same ? "ok  " : "FAIL", rows, fewer);
  return same;
}

// Cases that failed.
int check(bool small) {
  std::vector<MoeCase> cases;
  const auto add = [&](const char* name, moe::Problem p, auto... set) {
    MoeCase c{name, p};
    c.seed = cases.size() + 1;
    (set(c), ...);
    cases.push_back(c);
  };
  const auto routing = [](const char* r) { return [r](MoeCase& c) { c.routing = r; }; };
  const auto values = [](const char* v) { return [v](MoeCase& c) { c.values = v; }; };
  const auto variant = [](moe::Variant v) { return [v](MoeCase& c) { c.variant = static_cast<int>(v); }; };
  const auto first = [](int32_t e) { return [e](MoeCase& c) { c.first_expert = e; }; };
  const auto plain = [](MoeCase& c) { c.shared = false; };
  // rows, choices, experts, local experts, width, inner
  add("tiny", {5, 2, 4, 4, 512, 512});
  add("three choices", {50, 3, 12, 6, 512, 512}, first(3));
  add("one row", {1, 4, 16, 16, 512, 512}, plain);
  add("ragged shard", {77, 8, 32, 8, 1024, 512}, first(16));
  add("pair of blocks", {300, 2, 4, 4, 512, 512});
  if (!small) {
    add("medium tiles", {700, 4, 64, 16, 1024, 512}, routing("zipf"), first(16), variant(moe::Variant::kMedium));
    add("rows first", {700, 4, 64, 16, 1024, 512}, routing("zipf"), first(16), variant(moe::Variant::kPrefill));
    add("rows first, few rows", {60, 4, 64, 16, 1024, 512}, first(16), variant(moe::Variant::kPrefill));
    add("rows first, many rows", {3000, 4, 64, 16, 512, 1024}, routing("zipf"), first(16), variant(moe::Variant::kPrefill));
    add("no rows", {0, 8, 32, 8, 1024, 512});
    add("no local choice", {40, 4, 32, 8, 1024, 512}, routing("remote"), first(8));
    add("one expert gets all", {150, 4, 32, 16, 1024, 1024}, routing("one"));
    add("one expert, prefill", {1000, 4, 16, 4, 1024, 512}, routing("one"));
    add("saturated", {64, 4, 16, 16, 1024, 512}, values("saturated"));
    add("zero blocks", {64, 4, 16, 16, 1024, 512}, values("zeros"));
    add("decode widths", {700, 4, 64, 16, 1024, 512}, routing("zipf"), first(16));
    add("prefill ragged", {3000, 4, 32, 8, 1024, 512}, routing("zipf"), first(8));
    add("many plan blocks", {20000, 4, 64, 8, 512, 512});
    add("tp slice", {256, 8, 32, 32, 4096, 512});
    add("full width decode", {256, 8, 64, 16, 4096, 2048});
    add("full width prefill", {4096, 8, 64, 8, 4096, 2048}, first(56));
  }
  int failed = 0;
  for (const auto& c : cases) {
    const CheckResult r = check_case(c, small ? 1000 : 96);
    std::printf("%-28s %s  h rel %.4f  h scale %.1e  other codes %.4f  y rel %.5f  %s\n", c.name.c_str(), r.ok ? "ok  " : "FAIL", r.h_error,
                r.h_scale_error, r.h_step, r.y_error, r.failures.c_str());
    std::fflush(stdout);
    failed += r.ok ? 0 : 1;
  }
  if (!small) {
    failed += check_batches("batch of another size", 200, 61) ? 0 : 1;
    failed += check_batches("decode against prefill", 2000, 64) ? 0 : 1;
  }
  return failed + check_routes(small);
}

}  // namespace
}  // namespace baton::gpu_test

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  return harness_main(argc, argv, {"moe_harness", "ROWS:ROUTING[:VARIANT] | ROWS:route", {{"layers", 42}}, check, time_shapes});
}
