// By which name a plan knows what was measured (plan/work.h: Work::op), so that `baton plan --measured` takes the results of a bench.
#pragma once

#include <string_view>

#include "meter/metered_backend.h"
#include "model/config.h"

namespace baton::meter {

// Empty: the plan counts no such part apart, or the sizes do not tell which.
std::string_view plan_part(const OpRow& row, const model::Config& config, bool prefill);

}  // namespace baton::meter
