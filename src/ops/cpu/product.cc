#include "ops/cpu/product.h"

#include <algorithm>

#include "ops/cpu/packed_layout.h"

namespace baton::cpu {
namespace {

// A block of rows is used for several strips of weights and should stay in the second cache together with them.
constexpr int64_t kMaxBlockRows = 128;
constexpr int64_t kMinBlockRows = 32;
constexpr int64_t kBlockBytes = 512 * 1024;
// Weights of an item: enough to outweigh handing it out; for many rows as much as the second cache keeps beside the rows.
constexpr int64_t kFewRowsItemBytes = 24 * 1024;
constexpr int64_t kManyRowsItemBytes = 512 * 1024;
constexpr int64_t kFewRows = 32;
// Work, in bytes of weights read, below which another thread would not arrive in time.
constexpr int64_t kSerialCost = 64 * 1024;
// With fewer items per thread than this, threads wait for the last item.
constexpr int64_t kItemsPerThread = 4;

int64_t product_block_bytes(const Product& p) { return std::max<int64_t>(64, block_bytes(p.w.dtype, p.w.k) * (p.up.empty() ? 1 : 2)); }

}  // namespace

struct ProductList::Entry {
  Product product;
  int64_t item_begin = 0;    // of this product in the launch
  int64_t chunks = 0;        // items of one block of rows
  int64_t chunk_blocks = 0;  // blocks of columns per item: 1, 2 or whole strips, so that the blocks of a strip share their scales
};

// Rows that the thread holds ready, and its buffers.
struct alignas(64) ProductList::ThreadScratch {
  const RowSource* source = nullptr;
  const int32_t* index = nullptr;
  int64_t part = 0;
  int64_t first = -1;
  int64_t count = 0;
  Strip strip{};
  float* y = nullptr;   // [block_rows, kStripColumns]
  float* up = nullptr;  // the same
  std::byte* rows = nullptr;
};

ProductList::ProductList(Arena& arena, const ops::Executor& executor, const Limits& limits)
    : executor_(executor), limits_(limits), entries_(static_cast<Entry*>(arena.allocate(limits.products * int64_t{sizeof(Entry)}))) {
  block_rows_ = std::min(limits.rows, kMaxBlockRows);
  if (limits.copy_bytes > 0) {
    const int64_t fitting = kBlockBytes / limits.copy_bytes / kMinBlockRows * kMinBlockRows;
    block_rows_ = std::min(block_rows_, std::max(fitting, kMinBlockRows));
  }
  const int64_t y_bytes = block_rows_ * kStripColumns * int64_t{sizeof(float)};
  thread_bytes_ =
      align_up(int64_t{sizeof(ThreadScratch)} + kStripScratch + (limits.gated ? 2 : 1) * y_bytes + block_rows_ * limits.copy_bytes,
               kBufferAlignment);
  scratch_ = arena.array<std::byte>(thread_bytes_ * executor.pool().size());
}

void ProductList::add(const Product& p) {
  if (p.count == 0 || p.w.n == 0) return;
  BATON_CHECK(count_ < limits_.products && p.count <= limits_.rows);
  BATON_CHECK_MSG(p.w.k == p.rows->k() && p.y.cols == p.w.n, "x has {} columns and y {}, the weight is [{}, {}]", p.rows->k(), p.y.cols,
                  p.w.n, p.w.k);
  entries_[count_++] = {.product = p};
}

// Cuts every product into items, those of few rows into at most `most_blocks` blocks of columns; returns the number of items.
int64_t ProductList::divide(int64_t most_blocks) {
  int64_t items = 0;
  for (int64_t i = 0; i < count_; ++i) {
    Entry& e = entries_[i];
    const Product& p = e.product;
    const bool few = p.count <= kFewRows;
    const int64_t wanted = (few ? kFewRowsItemBytes : kManyRowsItemBytes) / product_block_bytes(p);
    e.chunk_blocks = std::max(wanted, kStripBlocks) / kStripBlocks * kStripBlocks;
    if (few) e.chunk_blocks = std::min(e.chunk_blocks, most_blocks);
    e.chunks = (block_count(p.w.n) + e.chunk_blocks - 1) / e.chunk_blocks;
    e.item_begin = items;
    items += e.chunks * ((p.count + block_rows_ - 1) / block_rows_);
  }
  return items;
}

// Returns the number of items; serial: the calling thread alone is faster.
int64_t ProductList::plan(bool& serial) {
  int64_t cost = 0;
  for (int64_t i = 0; i < count_; ++i) {
    const Product& p = entries_[i].product;
    cost += block_count(p.w.n) * product_block_bytes(p) * ((p.count + kFewRows - 1) / kFewRows);
  }
  serial = cost < kSerialCost || executor_.pool().size() == 1;
  constexpr int64_t kAnyBlocks = int64_t{1} << 40;
  int64_t items = divide(kAnyBlocks);
  for (int64_t blocks = kStripBlocks; !serial && blocks >= 1 && items < kItemsPerThread * executor_.pool().size(); blocks /= 2)
    items = divide(blocks);
  return items;
}

void ProductList::run() {
  ops::Executor const& executor = executor_;
  for (int t = 0; t < executor.pool().size(); ++t) {
    std::byte* memory = scratch_ + t * thread_bytes_;
    auto* thread = new (memory) ThreadScratch;
    memory += sizeof(ThreadScratch);
    thread->strip.scratch = memory;
    memory += kStripScratch;
    thread->y = reinterpret_cast<float*>(memory);
    memory += block_rows_ * kStripColumns * int64_t{sizeof(float)};
    if (limits_.gated) {
      thread->up = reinterpret_cast<float*>(memory);
      memory += block_rows_ * kStripColumns * int64_t{sizeof(float)};
    }
    thread->rows = memory;
  }
  bool serial = false;
  const int64_t items = plan(serial);
  const auto work = [&](int64_t item, int t) {
    const Entry* entry =
        std::upper_bound(entries_, entries_ + count_, item, [](int64_t i, const Entry& e) { return i < e.item_begin; }) - 1;
    run_item(*entry, item - entry->item_begin, *reinterpret_cast<ThreadScratch*>(scratch_ + t * thread_bytes_));
  };
  if (serial) {
    for (int64_t item = 0; item < items; ++item) work(item, 0);
  } else {
    executor.pool().parallel_shares(items, work);
  }
}

void ProductList::run_item(const Entry& entry, int64_t item, ThreadScratch& scratch) const {
  const Product& p = entry.product;
  const GemmKernels& kernels = executor_.gemms();
  const int64_t r0 = item / entry.chunks * block_rows_;
  const int64_t rows = std::min(block_rows_, p.count - r0);
  Strip& s = scratch.strip;
  if (scratch.source != p.rows || scratch.part != p.part || scratch.index != p.index || scratch.first != p.first + r0 ||
      scratch.count != rows) {
    p.rows->take(executor_.rows(), p.part, p.index, p.first + r0, rows, scratch.rows, s);
    scratch.source = p.rows;
    scratch.part = p.part;
    scratch.index = p.index;
    scratch.first = p.first + r0;
    scratch.count = rows;
  }
  const auto kernel = p.rows->form() != RowForm::kFloat && kernels.bf16_strip != nullptr ? kernels.bf16_strip : kernels.float_strip;
  const int64_t begin = item % entry.chunks * entry.chunk_blocks;
  const int64_t end = std::min(begin + entry.chunk_blocks, block_count(p.w.n));
  const int64_t bytes = block_bytes(p.w.dtype, p.w.k);
  const int64_t groups = (p.w.k + kGroupDepth - 1) / kGroupDepth;
  s.w_dtype = p.w.dtype;
  for (int64_t block = begin; block < end; block += kStripBlocks) {
    s.blocks = std::min(kStripBlocks, end - block);
    const int64_t column = block * kBlockColumns;
    const int64_t columns = std::min(s.blocks * kBlockColumns, p.w.n - column);
    const auto compute = [&](const ops::WeightView& w, float* y, int64_t y_stride) {
      s.w = static_cast<const std::byte*>(w.data) + block * bytes;
      // A thread mostly continues with the following blocks; a gated product alternates between its weights.
      s.next_w = static_cast<const std::byte*>(s.w) + s.blocks * bytes;
      if (!p.up.empty())
        s.next_w = &w == &p.w ? static_cast<const std::byte*>(p.up.data) + block * bytes
                              : static_cast<const std::byte*>(p.w.data) + (block + s.blocks) * bytes;
      s.w_scale = w.scale == nullptr ? nullptr : w.scale + column / ops::kScaleBlock * groups;
      s.y = y;
      s.y_stride = y_stride;
      kernel(s);
    };
    if (p.up.empty() && p.y.dtype == DType::kF32 && columns % kBlockColumns == 0) {
      compute(p.w, p.y.row<float>(r0) + column, p.y.stride);
      continue;
    }
    compute(p.w, scratch.y, kStripColumns);
    if (!p.up.empty()) {
      compute(p.up, scratch.up, kStripColumns);
      kernels.swiglu(scratch.y, scratch.up, kStripColumns, rows, s.blocks * kBlockColumns, p.limit);
    }
    kernels.store(scratch.y, kStripColumns, rows, columns, p.y.row_bytes(r0) + column * dtype_bytes(p.y.dtype),
                  p.y.stride * dtype_bytes(p.y.dtype), p.y.dtype);
  }
}

}  // namespace baton::cpu
