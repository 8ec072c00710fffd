// The tables of all endpoints.
#pragma once

#include <span>
#include <vector>

#include "api/field_table.h"

namespace baton::api {

std::vector<std::span<const Field>> chat_groups();

}  // namespace baton::api
