// Runs ops, or only plans them: the same code path computes results and, without touching data, the workspace that it will need.
#pragma once

#include <algorithm>

#include "ops/op_table.h"

namespace baton::model {

class Launcher {
 public:
  // Plans: allocate() returns null pointers, launch() asks each op for its scratch.
  explicit Launcher(ops::Backend& backend) : backend_(backend), planning_(true) {}
  // Runs on `workspace`, which planning sized.
  Launcher(ops::Backend& backend, std::byte* workspace, int64_t bytes) : backend_(backend), planning_(false), arena_(workspace, bytes) {}

  bool planning() const { return planning_; }
  Arena& arena() { return arena_; }
  const ops::OpTable& ops() const { return backend_.ops(); }
  ops::Backend& backend() { return backend_; }
  int64_t planned_bytes() const { return std::max(planned_, arena_.peak()); }

  template <class Params>
  void launch(const ops::Op<Params>& op, const Params& params) {
    if (planning_) {
      BATON_CHECK_MSG(op.run != nullptr && op.supports(params), "the backend lacks an op that the model needs");
      planned_ = std::max(planned_, arena_.mark() + op.workspace_bytes(backend_.executor(), params));
      return;
    }
    ops::Context context{&backend_.executor(), &arena_};
    op.run(context, params);
  }

 private:
  ops::Backend& backend_;
  bool planning_;
  Arena arena_;
  int64_t planned_ = 0;
};

// Gives back, at the end of a scope, what the scope took from the arena.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t mark_;
};

}  // namespace baton::model
