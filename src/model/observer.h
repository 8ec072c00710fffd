// Looks into a forward pass: for tests, golden data and teaching. Observing changes no result.
#pragma once

#include "ops/indexer.h"
#include "ops/moe.h"
#include "tensor/view.h"

namespace baton::model {

class Observer {
 public:
  virtual ~Observer() = default;
  // All streams [m, streams * d] after `layers_done` layers; 0 is the expanded embedding.
  virtual void on_streams(int64_t layers_done, ConstMatrixView streams) = 0;
  virtual void on_selection(int64_t layer, const ops::Selection& selection, int64_t rows) = 0;
  virtual void on_experts(int64_t layer, const ops::ExpertAssignment& experts, int64_t rows) = 0;
};

}  // namespace baton::model
