// Runs many products of rows with weights in one parallel region: what the dense ops and the experts have in common.
#pragma once

#include <cstdint>

#include "ops/cpu/row_source.h"
#include "ops/weight.h"
#include "tensor/buffer.h"

namespace baton::cpu {

// y = x w^T, or y = silu(min(x w^T, limit)) * clamp(x up^T, +-limit), for `count` rows.
struct Product {
  const RowSource* rows = nullptr;
  int64_t part = 0;
  const int32_t* index = nullptr;  // row i is row index[first + i] of the source, or first + i
  int64_t first = 0;
  int64_t count = 0;
  ops::WeightView w{};
  ops::WeightView up{};  // empty, or of the type and shape of w
  float limit = 0;
  MatrixView y{};  // [count, w.n]
};

// The memory and the work list of one launch. Construct (with an arena without memory: to plan), add products, run.
class ProductList {
 public:
  struct Limits {
    int64_t products = 0;    // largest number of products
    int64_t rows = 0;        // largest count of a product
    int64_t copy_bytes = 0;  // of the sources whose rows may need a copy: their largest copy_bytes()
    bool gated = false;
  };
  ProductList(Arena& arena, const ops::Executor& executor, const Limits& limits);

  void add(const Product& p);
  void run();

 private:
  struct Entry;
  struct ThreadScratch;
  void run_item(const Entry& entry, int64_t item, ThreadScratch& scratch) const;
  int64_t divide(int64_t most_blocks);
  int64_t plan(bool& serial);

  const ops::Executor& executor_;
  Limits limits_;
  Entry* entries_;
  int64_t count_ = 0;
  std::byte* scratch_;
  int64_t block_rows_;    // rows that a thread takes at a time
  int64_t thread_bytes_;  // of scratch_
};

}  // namespace baton::cpu
