// The beginning of a request's prompt as hashes of its text, block by block: requests that begin alike share their first hashes.
//
// The body is not parsed: a scan of its outermost object finds the members that make the prompt (tools, system, messages and so on), and
// their bytes are hashed as they are. Members that change from request to request (seed, user) do not matter, in whatever order they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::router {

// About a page of tokens.
constexpr size_t kBlockBytes = 512;
// A longer prompt counts by its beginning.
constexpr size_t kMostBlocks = 512;

// Each hash covers everything up to the end of its block. `salt` keeps tenants apart, whose caches are apart, too. Whole blocks only: none
// for short prompts and for bodies that are no JSON object.
std::vector<uint64_t> prompt_blocks(std::string_view body, std::string_view salt);

}  // namespace baton::router
