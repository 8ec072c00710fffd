// SHA-256, for comparing long lists of ids by their sum.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace baton::text {

// In hexadecimal.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace baton::text
