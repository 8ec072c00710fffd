// A model with caches, from a checkpoint of tests/data, for tests across rooms: on the CPU, or with BATON_TEST_DEVICE=cuda on the plain
// CUDA backend in memory that the host reads as well.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/sequence_runner.h"
#include "ops/cpu/backend.h"
#include "ops/cuda/open.h"

namespace baton::testing {

inline std::filesystem::path golden_dir(const std::string& name) { return std::filesystem::path(BATON_TEST_DATA) / "golden" / name; }

struct ModelSetup {
  std::filesystem::path dir;
  DType activation = DType::kF32;
  DType state = DType::kF32;
  DType latent = DType::kF32;  // and index
  ops::ActivationQuant quant = ops::ActivationQuant::kNone;
  bool chunked_kda = false;
  bool expanded_attention = false;
  int threads = 2;
  cpu::Isa isa = cpu::detect_isa();
  int sequences = 4;
  int64_t max_tokens = 512;
};

// Setups that promise exactness, by the name that a failing test prints.
inline ModelSetup setup_for(const std::string& folder, DType activation) {
  ModelSetup s;
  s.dir = golden_dir(folder);
  s.activation = activation;
  s.latent = activation;
  return s;
}

struct TestModel {
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::Glm5Next> model;
  std::unique_ptr<model::SequenceRunner> runner;

  explicit TestModel(const ModelSetup& s) {
    const char* device = std::getenv("BATON_TEST_DEVICE");
    if (device != nullptr && std::string(device) == "cuda") {
      auto opened = cuda::open_device({.host_visible = true, .plain = true});
      if (!opened) throw std::runtime_error(opened.error().message);
      backend = std::move(opened->backend);
    } else {
      backend = std::make_unique<cpu::CpuBackend>(cpu::BackendOptions{.threads = s.threads, .isa = s.isa});
    }
    auto checkpoint = model::Checkpoint::open(s.dir);
    if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
    model::ModelOptions options;
    options.numerics = {s.activation, s.quant, s.chunked_kda, s.expanded_attention};
    options.cache = {.activation = s.activation, .state = s.state, .latent = s.latent, .index = s.latent};
    options.max_rows = s.max_tokens;
    options.max_logits_rows = 8;
    options.max_sequences = s.sequences;
    options.max_pages = (s.max_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
    auto loaded = model::Glm5Next::load(*checkpoint, *backend, options);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    model = std::move(*loaded);
    auto created = model::SequenceRunner::create(*model, *backend, s.sequences, s.max_tokens, s.max_tokens);
    if (!created) throw std::runtime_error(created.error().message);
    runner = std::make_unique<model::SequenceRunner>(std::move(*created));
  }

  // Hidden rows as bytes.
  std::vector<std::byte> forward(int sequence, std::span<const int32_t> ids, bool verify = false) {
    const model::SequenceRunner::Rows rows{sequence, ids, verify};
    return bytes(runner->forward({&rows, 1}));
  }
  static std::vector<std::byte> bytes(MatrixView v) { return {v.row_bytes(0), v.row_bytes(0) + v.rows * v.cols * dtype_bytes(v.dtype)}; }
  // State, windows, rings and last rows of a slot, replay rings left out: they are scratch between cycles.
  std::vector<std::byte> slot(int sequence) const {
    const std::byte* p = runner->slots().slot(sequence);
    return {p, p + model->cache_layout().slot_bytes - model->cache_layout().ring_bytes};
  }
  // What the pages hold for the first n tokens: latent rows, and the rows of closed pools.
  std::vector<std::byte> pages(int sequence, int64_t n) const {
    std::vector<std::byte> out;
    const model::CacheLayout& layout = model->cache_layout();
    for (int64_t t = 0; t < n; ++t) {
      const std::byte* page = runner->pages().page(runner->page_id(sequence, t / ops::kPageTokens));
      for (size_t l = 0; l < layout.latent.size() - static_cast<size_t>(model->config().mtp_layers); ++l) {
        const ops::LatentLayout& a = layout.latent[l];
        const std::byte* row = page + a.page_offset + t % ops::kPageTokens * a.row_bytes;
        out.insert(out.end(), row, row + a.row_bytes);
        const ops::IndexerLayout& b = layout.index[l];
        if ((t + 1) % b.pool != 0) continue;
        const int64_t width = b.dim * dtype_bytes(b.dtype);
        const std::byte* pooled = page + b.page_offset + t % ops::kPageTokens / b.pool * width;
        out.insert(out.end(), pooled, pooled + width);
      }
    }
    return out;
  }
};

}  // namespace baton::testing
