// What one call of an op must do at least: every operand moved once between the device's memory and the op, every product computed.
//
// Counts follow what the params and the arrays behind them say: experts that rows chose, pools that rows selected (a pool that several rows
// of a sequence selected counts once), positions of sequences. Tables, norms' weights and the like are left out where they are below a
// thousandth of the rest.
#pragma once

#include <cstdint>
#include <string>

#include "ops/op_table.h"

namespace baton::meter {

// Which units the products run on.
enum class Arithmetic : uint8_t { kNone, kFloat, kBf16, kFp8 };

struct OpCost {
  double flop = 0;
  double bytes = 0;
  Arithmetic arithmetic = Arithmetic::kNone;
  std::string shape{};  // what tells this call from others of the op: sizes that the model fixes, no counts of rows
};

// `backend` brings arrays to the host: waits for the device.
OpCost cost_of(ops::Backend& backend, const ops::EmbedParams& p);
OpCost cost_of(ops::Backend& backend, const ops::RmsNormParams& p);
OpCost cost_of(ops::Backend& backend, const ops::GemmParams& p);
OpCost cost_of(ops::Backend& backend, const ops::GemmBatchedParams& p);
OpCost cost_of(ops::Backend& backend, const ops::GatedMlpParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MhcMixParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MhcExpandParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MhcFinalParams& p);
OpCost cost_of(ops::Backend& backend, const ops::KdaParams& p);
OpCost cost_of(ops::Backend& backend, const ops::KdaFoldParams& p);
OpCost cost_of(ops::Backend& backend, const ops::LatentWriteParams& p);
OpCost cost_of(ops::Backend& backend, const ops::IndexerKeysParams& p);
OpCost cost_of(ops::Backend& backend, const ops::IndexerSelectParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MlaAttendParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MlaAttendExpandedParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MoeRouteParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MoeGateUpParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MoeDownParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MoeCombineParams& p);
OpCost cost_of(ops::Backend& backend, const ops::MoeExpertsParams& p);
OpCost cost_of(ops::Backend& backend, const ops::SampleParams& p);
OpCost cost_of(ops::Backend& backend, const ops::WindowWriteParams& p);
OpCost cost_of(ops::Backend& backend, const ops::WindowAttendParams& p);
OpCost cost_of(ops::Backend& backend, const ops::BlockConvParams& p);
OpCost cost_of(ops::Backend& backend, const ops::DraftPathParams& p);

}  // namespace baton::meter
