// Routing on the CPU; registered by moe.cc.
#pragma once

#include "ops/op_table.h"

namespace baton::cpu {

void run_moe_route(ops::Context& ctx, const ops::MoeRouteParams& p);
int64_t moe_route_workspace(const ops::Executor& e, const ops::MoeRouteParams& p);

}  // namespace baton::cpu
