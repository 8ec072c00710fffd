// Puts the tuned kernels in front of the plain bodies: each takes the sizes and types that it is cut for.
#pragma once

#include "ops/op_table.h"

namespace baton::cuda {

// Every op of the table must have its plain body already.
void register_tuned(ops::OpTable& table);

// Likewise those that no device has checked yet (DeviceOptions::unproven), before or after the others. A kernel moves to register_tuned()
// once bench/gpu/stay.sh has found it right.
void register_unproven(ops::OpTable& table);

}  // namespace baton::cuda
