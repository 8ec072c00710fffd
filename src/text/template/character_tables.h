// What utf8proc does not tell about characters and Python's text methods ask for.
#pragma once

namespace baton::text::jinja {

bool is_other_digit(char32_t c);    // digits that are not decimal
bool is_other_numeric(char32_t c);  // numeric characters that are no number by category
bool is_other_lower(char32_t c);    // lower case by property, not by category
bool is_other_upper(char32_t c);
// Three characters, zeros behind them; null for all that have one capital, or title, form.
const char32_t* special_upper(char32_t c);
const char32_t* special_title(char32_t c);

}  // namespace baton::text::jinja
