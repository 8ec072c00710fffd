#include "model/launch_rows.h"

#include <algorithm>
#include <cstring>

#include "ops/batch.h"

namespace baton::model {
namespace {

constexpr int64_t kHeader = sizeof(ops::SequenceRows) / sizeof(int32_t);

}  // namespace

int64_t LaunchRowsBuffer::bytes(int64_t rows, int64_t sequences, int64_t pages) {
  return (3 * rows + sequences * (kHeader + pages)) * int64_t{sizeof(int32_t)};
}

Result<LaunchRowsBuffer> LaunchRowsBuffer::create(ops::Backend& backend, int64_t rows, int64_t sequences, int64_t pages) {
  LaunchRowsBuffer b(backend);
  BATON_ASSIGN(b.device_, backend.allocate(bytes(rows, sequences, pages)));
  b.staging_.reserve(static_cast<size_t>(b.device_.bytes()) / sizeof(int32_t));
  return b;
}

ForwardInput LaunchRowsBuffer::upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids,
                                      const std::vector<std::vector<int32_t>>& tables, int64_t reach) {
  const auto n = std::ssize(sequences);
  const auto m = std::ssize(ids);
  int64_t width = 0;
  for (const ops::SequenceRows& s : sequences)
    width = std::max<int64_t>(width, (s.position + s.row_count + reach + ops::kPageTokens - 1) / ops::kPageTokens);
  if (!sequences.empty()) width = std::min(width, std::ssize(tables.front()));
  staging_.resize(static_cast<size_t>(3 * m + n * (kHeader + width)));
  BATON_CHECK(std::ssize(staging_) * int64_t{sizeof(int32_t)} <= device_.bytes());
  int32_t* const id = staging_.data();
  int32_t* const sequence = id + m;
  int32_t* const owner = sequence + n * kHeader;
  int32_t* const position = owner + m;
  int32_t* const table = position + m;
  std::copy(ids.begin(), ids.end(), id);
  std::memcpy(sequence, sequences.data(), sequences.size_bytes());
  for (int64_t q = 0; q < n; ++q) {
    const ops::SequenceRows& s = sequences[static_cast<size_t>(q)];
    for (int32_t i = 0; i < s.row_count; ++i) {
      owner[s.row_begin + i] = static_cast<int32_t>(q);
      position[s.row_begin + i] = s.position + i;
    }
    std::copy_n(tables[static_cast<size_t>(s.slot)].begin(), width, table + q * width);
  }
  backend_->copy_to_device(device_.data(), id, static_cast<int64_t>(staging_.size() * sizeof(int32_t)));

  const auto* device = reinterpret_cast<const int32_t*>(device_.data());
  ForwardInput input;
  input.ids = device;
  input.rows.batch = {.sequences = reinterpret_cast<const ops::SequenceRows*>(device + (sequence - id)),
                      .sequence_count = static_cast<int32_t>(n),
                      .row_count = static_cast<int32_t>(m),
                      .row_sequence = device + (owner - id),
                      .positions = device + (position - id),
                      .page_tables = device + (table - id),
                      .page_table_stride = static_cast<int32_t>(width)};
  return input;
}

}  // namespace baton::model
