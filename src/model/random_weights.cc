#include "model/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
#include "ops/weight.h"

namespace baton::model {
namespace {

// How a tensor is drawn. The first rule whose text occurs in the name holds.
struct Rule {
  enum Kind { kFanIn, kNormal, kUniform };
  std::string_view text;
  Kind kind;
  float a;  // kFanIn: gain, for a standard deviation of gain / sqrt(inputs). kNormal: mean. kUniform: lower bound
  float b;  // kNormal: standard deviation. kUniform: upper bound
};

// What a sub-layer adds to the streams stays well below what they hold (gains below 1 where a sub-layer writes), while gates, decays,
// mixing weights and scores spread widely enough that each of them matters.
constexpr Rule kRules[] = {
    {"embed_tokens", Rule::kNormal, 0.0F, 1.0F},
    {"lm_head", Rule::kFanIn, 2.0F, 0},
    {"k_norm.bias", Rule::kNormal, 0.0F, 0.3F},
    {"norm.weight", Rule::kNormal, 1.0F, 0.25F},  // every RMSNorm and LayerNorm
    {"conv1d.weight", Rule::kNormal, 0.0F, 0.6F},
    {"A_log", Rule::kUniform, -0.7F, 0.9F},
    {"dt_bias", Rule::kUniform, -4.5F, 0.5F},  // decays from almost none to strong
    {"_base", Rule::kNormal, 0.0F, 1.0F},
    {"hc_attn_scale", Rule::kUniform, 0.6F, 1.4F},
    {"hc_ffn_scale", Rule::kUniform, 0.6F, 1.4F},
    {"e_score_correction_bias", Rule::kNormal, 0.0F, 0.25F},
    {"index_kpool_compress_ape", Rule::kNormal, 0.0F, 0.8F},
    {"index_kpool_compress_gate", Rule::kFanIn, 1.5F, 0},
    {"shared_experts.down_proj", Rule::kFanIn, 0.25F, 0},
    {"mlp.down_proj", Rule::kFanIn, 0.25F, 0},
    {"down_proj", Rule::kFanIn, 0.12F, 0},  // routed experts: several are added up, and routed_scaling_factor amplifies the sum
    {"gate_proj", Rule::kFanIn, 1.3F, 0},
    {"up_proj", Rule::kFanIn, 1.3F, 0},
    {"self_attn.q_b_proj", Rule::kFanIn, 1.3F, 0},  // attention that prefers some tokens
    {"self_attn.kv_b_proj", Rule::kFanIn, 1.4F, 0},
    {"self_attn.o_proj", Rule::kFanIn, 0.3F, 0},
    {"self_attn.b_proj", Rule::kFanIn, 1.5F, 0},
    {"self_attn.g_b_proj", Rule::kFanIn, 1.5F, 0},
    {"", Rule::kFanIn, 1.0F, 0},
};

const Rule& rule_of(std::string_view name) {
  for (const Rule& rule : kRules)
    if (name.find(rule.text) != std::string_view::npos) return rule;
  return kRules[std::size(kRules) - 1];
}

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// Standard deviation of the sum of four independent bytes, and its mean.
constexpr float kByteSumDeviation = 147.80054F;
constexpr float kByteSumMean = 510.0F;

constexpr int kLanes = 16;
using Lanes = std::array<uint32_t, kLanes>;

// philox() of kLanes consecutive blocks at once, laid out so that the compiler uses vector registers.
struct PhiloxLanes {
  Lanes c0, c1, c2, c3;

  PhiloxLanes(uint64_t key, uint64_t first_block, uint64_t stream) {
    for (int i = 0; i < kLanes; ++i) {
      const auto lane = static_cast<size_t>(i);
      c0[lane] = static_cast<uint32_t>(first_block + lane);
      c1[lane] = static_cast<uint32_t>((first_block + lane) >> 32);
      c2[lane] = static_cast<uint32_t>(stream);
      c3[lane] = static_cast<uint32_t>(stream >> 32);
    }
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < kLanes; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
        const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
        c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<uint32_t>(p1);
        c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
  }
};

}  // namespace

RandomTensor::RandomTensor(std::string_view name, const std::vector<int64_t>& shape, uint64_t seed) : key_(fnv1a(name)), seed_(seed) {
  const Rule& rule = rule_of(name);
  uniform_ = rule.kind == Rule::kUniform;
  switch (rule.kind) {
    case Rule::kFanIn: spread_ = rule.a / std::sqrt(static_cast<float>(shape.back())); break;
    case Rule::kNormal:
      centre_ = rule.a;
      spread_ = rule.b;
      break;
    case Rule::kUniform:
      centre_ = 0.5F * (rule.a + rule.b);
      spread_ = 0.5F * (rule.b - rule.a);
      break;
  }
}

// Bell-shaped values are sums of the four bytes of a word: integers, hence the same on every machine, and quicker than an exact normal
// distribution, whose tails would serve no purpose here.
void RandomTensor::fill_blocks(int64_t first_block, std::span<float> out) const {
  const PhiloxLanes lanes(key_, static_cast<uint64_t>(first_block), seed_);
  const float factor = uniform_ ? 2.0F * spread_ : spread_ / kByteSumDeviation;
  std::array<float, 4 * kLanes> values;
  const Lanes* words[4] = {&lanes.c0, &lanes.c1, &lanes.c2, &lanes.c3};
  for (size_t w = 0; w < 4; ++w) {
    for (size_t i = 0; i < kLanes; ++i) {
      const uint32_t x = (*words[w])[i];
      const uint32_t pairs = (x & 0x00FF00FFU) + ((x >> 8) & 0x00FF00FFU);
      const float bell = static_cast<float>(static_cast<int32_t>((pairs & 0xFFFFU) + (pairs >> 16))) - kByteSumMean;
      const float flat = static_cast<float>(static_cast<int32_t>(x >> 8)) * 0x1p-24F - 0.5F;
      values[4 * i + w] = centre_ + factor * (uniform_ ? flat : bell);
    }
  }
  std::copy_n(values.begin(), out.size(), out.begin());
}

void RandomTensor::fill(int64_t first, std::span<float> out) const {
  constexpr int64_t kBatch = 4 * kLanes;
  std::array<float, kBatch> batch;
  while (!out.empty()) {
    const int64_t skip = first % 4;  // the batch begins with the block that holds `first`
    const auto count = static_cast<size_t>(std::min<int64_t>(kBatch - skip, static_cast<int64_t>(out.size())));
    if (skip == 0) {
      fill_blocks(first / 4, out.first(count));
    } else {
      fill_blocks(first / 4, batch);
      std::copy_n(batch.begin() + skip, count, out.begin());
    }
    first += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
}

void RandomTensor::fill_quantised(int64_t row, int64_t rows, int64_t k, std::span<e4m3> codes, std::span<float> scales) const {
  constexpr int64_t kBlock = ops::kScaleBlock;
  std::array<float, kBlock * kBlock> block;
  for (int64_t column = 0; column < k; column += kBlock) {
    const int64_t columns = std::min(kBlock, k - column);
    float largest = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<float> line(block.data() + r * kBlock, static_cast<size_t>(columns));
      fill((row + r) * k + column, line);
      for (const float x : line) largest = std::max(largest, std::fabs(x));
    }
    const float scale = largest > 0 ? largest / kE4m3Max : 1.0F;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        codes[static_cast<size_t>(r * k + column + c)] = to_e4m3(block[static_cast<size_t>(r * kBlock + c)] / scale);
    scales[static_cast<size_t>(column / kBlock)] = scale;
  }
}

}  // namespace baton::model
