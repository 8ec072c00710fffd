// The tables of fields as text: what stands between the marks in docs/api.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/field_table.h"

namespace baton::api {

struct ReferenceTable {
  std::string_view name;  // of the mark: `<!-- fields: name -->`
  std::span<const Field> fields;
};

// Every group of fields once: those of one endpoint, and those that several share.
std::vector<ReferenceTable> reference_tables();
// A table of what is taken, and lists of what has no effect and what is refused; ends with an empty line.
std::string reference_text(std::span<const Field> fields);
// `page` with what lies between its marks made anew. Fails where a mark is missing or unknown.
Result<std::string> with_reference(std::string_view page);

}  // namespace baton::api
