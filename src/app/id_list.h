// Token ids as text: separated by commas or white space, optionally as a JSON list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::app {

// `where` names the source in messages.
Result<std::vector<int32_t>> parse_id_list(std::string_view text, const std::string& where);

}  // namespace baton::app
