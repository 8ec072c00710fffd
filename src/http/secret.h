// The secret that routers and instances of a fleet share, and show each other in a header.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::http {

inline constexpr std::string_view kFleetSecretHeader = "x-baton-fleet-secret";

// At least 16 visible characters; white space at the end of the file does not count.
Result<std::string> read_secret(const std::string& file);
// In a time that does not depend on where they differ.
bool equal_secrets(std::string_view given, std::string_view secret);

}  // namespace baton::http
