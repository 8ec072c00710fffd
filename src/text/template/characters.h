// Characters as Python's text methods see them.
#pragma once

#include <string_view>

namespace baton::text::jinja {

// One character in another case: up to three. The final sigma is the caller's matter.
struct CaseForm {
  char32_t chars[3] = {};
  int count = 0;
};
CaseForm upper_of(char32_t c);
CaseForm lower_of(char32_t c);
CaseForm title_of(char32_t c);

bool is_space(char32_t c);     // what strip() and split() take
bool is_line_end(char32_t c);  // what splitlines() takes; CR LF is one
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_printable(char32_t c);  // repr() shows it as it is
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_case_ignorable(char32_t c);
int decimal_value(char32_t c);  // of decimal digits

// Whether the capital sigma at byte `at` of `text` ends a word, and so becomes a final one.
bool is_final_sigma(std::string_view text, size_t at);

}  // namespace baton::text::jinja
