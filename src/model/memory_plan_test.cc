#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/cache_layout.h"
#include "tensor/buffer.h"

namespace baton::model {
namespace {

Config released() { return *parse_config(*read_file(BATON_TEST_DATA "/configs/glm-5.3-flash.json", 1 << 20), "glm-5.3-flash.json"); }

WeightSizes released_sizes(WeightFormat format) { return measure_weights(stored_tensors(released(), format), released()); }

// Published counts of the released model, or what follows from them.
TEST(MemoryPlan, CountsTheReleasedParameters) {
  const WeightSizes s = released_sizes(WeightFormat::kFp8);
  EXPECT_EQ(s.main_model().parameters, 313'326'811'966);
  EXPECT_EQ(s.mtp_layer().parameters, 7'432'592'416);
  EXPECT_EQ(s.total().parameters, 320'759'404'382);
  EXPECT_EQ(s[Part::kKda].parameters, 34 * int64_t{137'732'288});
  EXPECT_EQ(s[Part::kSparseAttention].parameters + s[Part::kIndexer].parameters, 11 * int64_t{124'914'432});
  EXPECT_EQ(s[Part::kIndexer].parameters, 11 * int64_t{7'471'872});
  EXPECT_EQ(s[Part::kDenseMlp].parameters, 3 * int64_t{150'994'944});
  EXPECT_EQ(s[Part::kSharedExperts].parameters, 42 * int64_t{25'165'824});
  EXPECT_EQ(s[Part::kRoutedExperts].parameters, 42 * 288 * int64_t{25'165'824});
  EXPECT_EQ(s[Part::kRoutedExperts].parameters + s[Part::kSharedExperts].parameters + s[Part::kRouter].parameters,
            42 * int64_t{7'274'103'072});
  EXPECT_EQ(s[Part::kHyperConnections].parameters, 45 * int64_t{786'486});
  EXPECT_EQ(s[Part::kEmbedding].parameters, 634'388'480);
  EXPECT_EQ(s[Part::kHead].parameters, 634'388'480);
  EXPECT_NEAR(static_cast<double>(s.active_parameters), 16.74e9, 0.01e9);
}

TEST(MemoryPlan, CountsTheReleasedBytes) {
  const WeightSizes s = released_sizes(WeightFormat::kFp8);
  EXPECT_EQ(s.total().tensors, 75'761);
  EXPECT_EQ(s[Part::kKda].bytes(), 34 * int64_t{275'481'088});
  EXPECT_EQ(s[Part::kSparseAttention].bytes() + s[Part::kIndexer].bytes(), 11 * int64_t{149'190'144});
  EXPECT_EQ(s[Part::kDenseMlp].bytes(), 3 * int64_t{151'031'808});
  EXPECT_EQ(s[Part::kRoutedExperts].bytes(), 42 * 288 * int64_t{25'171'968});
  EXPECT_EQ(s[Part::kRoutedExperts].bytes() + s[Part::kSharedExperts].bytes() + s[Part::kRouter].bytes(), 42 * int64_t{7'277'059'200});
  EXPECT_EQ(s[Part::kHyperConnections].bytes(), 45 * int64_t{1'573'080});
  EXPECT_EQ(s[Part::kHead].bytes(), 1'268'776'960);
  EXPECT_EQ(s.mtp_layer().bytes(), 7'493'399'168);
  EXPECT_NEAR(static_cast<double>(s.total().bytes()), 327.20e9, 0.01e9);
  const PartSize total = s.total();
  EXPECT_NEAR(static_cast<double>(total.bytes_by_dtype[static_cast<size_t>(DType::kF8E4M3)]), 314.397e9, 0.001e9);
  EXPECT_NEAR(static_cast<double>(total.scales), 19.19e6, 0.01e6);
  int64_t quantised = 0;
  for (const StoredTensor& t : stored_tensors(released(), WeightFormat::kFp8)) quantised += t.dtype == DType::kF8E4M3 ? 1 : 0;
  EXPECT_EQ(quantised, 37'338);
}

TEST(MemoryPlan, FormatsDifferOnlyInBytes) {
  const WeightSizes bf16 = released_sizes(WeightFormat::kBF16);
  EXPECT_EQ(bf16.total().parameters, 320'759'404'382);
  EXPECT_EQ(bf16.total().scales, 0);
  EXPECT_EQ(bf16.total().bytes_by_dtype[static_cast<size_t>(DType::kF8E4M3)], 0);
  EXPECT_EQ(released_sizes(WeightFormat::kF32).total().bytes(), 4 * int64_t{320'759'404'382});
}

TEST(MemoryPlan, SharesExpertsAmongGpus) {
  const WeightSizes s = released_sizes(WeightFormat::kFp8);
  const GpuShare one = gpu_share(s, released(), 1);
  EXPECT_EQ(one.experts, 288);
  EXPECT_EQ(one.bytes(), s.total().bytes());
  EXPECT_EQ(one.bytes_with_split(), one.bytes());
  const GpuShare eight = gpu_share(s, released(), 8);
  EXPECT_EQ(eight.experts, 36);
  EXPECT_EQ(eight.expert_bytes, 43 * 36 * int64_t{25'171'968});
  EXPECT_EQ(eight.replicated_bytes, one.replicated_bytes);
  EXPECT_EQ(eight.bytes_with_split(), eight.bytes() - (2 * int64_t{1'268'776'960} + 3 * int64_t{151'031'808}) / 8 * 7);
  // Experts that do not divide evenly: the fullest rank counts.
  Config odd = released();
  odd.experts = 10;
  EXPECT_EQ(gpu_share(s, odd, 4).experts, 3);
}

TEST(MemoryPlan, SizesTheReleasedCaches) {
  const CacheSizes c = cache_sizes(released());
  EXPECT_EQ(c.latent_bf16, 11'264);
  EXPECT_EQ(c.latent_bf16 + c.latent_bf16_mtp, 12'288);
  EXPECT_EQ(c.latent_fp8, 5'808);
  EXPECT_EQ(c.latent_fp8 + c.latent_fp8_mtp, 6'336);
  EXPECT_EQ(c.index_fp8, 4 * 363);
  EXPECT_EQ(c.index_bf16, 4 * 704);
  EXPECT_EQ(c.index_bf16 + c.index_bf16_mtp, 4 * 768);
  EXPECT_EQ(c.state_f32, 142'606'336);
  EXPECT_EQ(c.state_bf16, 71'303'168);
  EXPECT_EQ(c.window_bf16, 5'013'504);
  EXPECT_EQ(c.tail_bf16, 22'528);
  EXPECT_EQ(c.tail_bf16_mtp, 2'048);
}

// What the caches really take, apart from alignment.
TEST(MemoryPlan, AgreesWithTheCacheLayout) {
  const CacheSizes c = cache_sizes(released());
  const CacheLayout layout = plan_cache(
      released(), {.activation = DType::kBF16, .state = DType::kBF16, .latent = DType::kF8E4M3, .index = DType::kF8E4M3, .verify_rows = 0});
  const int64_t pools = 64 / released().index_kpool;
  EXPECT_EQ(layout.page_bytes, align_up(64 * (c.latent_fp8 + c.latent_fp8_mtp) + pools * (c.index_fp8 + c.index_fp8_mtp), 256));
  const int64_t hidden_and_count = released().hidden_size * 2 + 4;
  EXPECT_EQ(layout.slot_bytes, align_up(c.state_bf16 + c.window_bf16 + c.tail_bf16 + c.tail_bf16_mtp + hidden_and_count, 256));
}

// Snapshots of the state behind each row instead would make it nine times the state.
TEST(MemoryPlan, ASlotWithItsReplayRingIsAtMostThreeTenthsLarger) {
  CacheTypes types{.activation = DType::kBF16, .state = DType::kBF16, .latent = DType::kF8E4M3, .index = DType::kF8E4M3, .verify_rows = 0};
  const int64_t slot = plan_cache(released(), types).slot_bytes;
  types.verify_rows = 8;
  const CacheLayout with = plan_cache(released(), types);
  EXPECT_GT(with.ring_bytes, 0);
  EXPECT_LE(static_cast<double>(with.slot_bytes), 1.3 * static_cast<double>(slot)) << slot << " and " << with.slot_bytes;
}

TEST(MemoryPlan, EveryTensorOfACheckpointBelongsToItsPart) {
  for (const char* name : {"tiny", "small-bf16", "small-fp8", "mtp"}) {
    const auto checkpoint = Checkpoint::open(std::string(BATON_TEST_DATA "/golden/") + name);
    ASSERT_TRUE(checkpoint.ok());
    const Config& c = checkpoint->config();
    const WeightSizes actual = measure_weights(stored_tensors(*checkpoint), c);
    const WeightFormat format = std::string(name) == "tiny"        ? WeightFormat::kF32
                                : std::string(name) == "small-fp8" ? WeightFormat::kFp8
                                                                   : WeightFormat::kBF16;
    const WeightSizes planned = measure_weights(stored_tensors(c, format), c);
    for (size_t i = 0; i < kPartCount; ++i) {
      EXPECT_EQ(actual.parts[i].tensors, planned.parts[i].tensors) << name << " " << part_name(static_cast<Part>(i));
      EXPECT_EQ(actual.parts[i].bytes(), planned.parts[i].bytes()) << name << " " << part_name(static_cast<Part>(i));
    }
    EXPECT_EQ(actual[Part::kNorms].tensors, 2 * c.layer_count() + 1);
    EXPECT_EQ(actual[Part::kHyperConnections].tensors, 6 * c.layer_count());
  }
}

}  // namespace
}  // namespace baton::model
