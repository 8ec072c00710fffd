#include "text/template/characters.h"

#include <utf8proc.h>

#include "text/template/character_tables.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

CaseForm form_of(const char32_t* special, utf8proc_int32_t simple) {
  CaseForm f;
  if (special == nullptr) {
    f.chars[f.count++] = static_cast<char32_t>(simple);
    return f;
  }
  while (f.count < 3 && special[f.count] != 0) {
    f.chars[f.count] = special[f.count];
    ++f.count;
  }
  return f;
}

}  // namespace

CaseForm upper_of(char32_t c) { return form_of(special_upper(c), utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
CaseForm title_of(char32_t c) { return form_of(special_title(c), utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }
CaseForm lower_of(char32_t c) {
  if (c == 0x130) return {{U'i', 0x307}, 2};  // the only one that becomes two
  return form_of(nullptr, utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) { return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029; }

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_decimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || is_other_digit(c); }
bool is_numeric(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO || is_other_numeric(c);
}
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c) || is_digit(c); }

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_other_lower(c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_other_upper(c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (c) {
    case '\'':
    case '.':
    case ':':
    case 0xB7:
    case 0x387:
    case 0x55F:
    case 0x5F4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A: return true;
    default: break;
  }
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
  }
}

int decimal_value(char32_t c) {
  if (c < 0x80) return static_cast<int>(c - '0');
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<int>((c - 0x1D7CE) % 10);  // five alphabets without a gap
  // Everywhere else the ten digits of a script stand in a row that begins at a multiple of 16, or 6 behind one.
  const char32_t low = c & 0xF;
  return static_cast<int>(low <= 9 && category(c & ~char32_t{0xF}) == UTF8PROC_CATEGORY_ND ? low : low - 6);
}

bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  bool word = false;
  while (before > 0) {
    do --before;
    while (before > 0 && is_continuation(text[before]));
    const char* p = text.data() + before;
    const char32_t c = read_valid_char(p);
    if (is_case_ignorable(c)) continue;
    word = is_cased(c);
    break;
  }
  if (!word) return false;
  const char* p = text.data() + at;
  const char* const end = text.data() + text.size();
  read_valid_char(p);
  while (p < end) {
    const char32_t c = read_valid_char(p);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

}  // namespace baton::text::jinja
