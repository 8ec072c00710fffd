// baton inspect on the folder of a drafter.
#pragma once

#include <string>

#include "base/result.h"

namespace baton::app {

Status inspect_drafter(const std::string& dir, bool json);

// Bytes for people.
std::string readable_bytes(int64_t bytes);

}  // namespace baton::app
