// Unicode normalization through utf8proc, limited to the places that can change at all: most text is in NFC, and copying is far faster.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "text/normalizer.h"
#include "text/unicode_ranges.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

// All Unicode forms leave these alone, and nothing composes or reorders across their front: ASCII, CJK ideographs, and whatever has no
// decomposition, no combining class and is no second half of a composition.
bool is_inert(char32_t c) {
  if (c < 0x80 || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF)) return true;
  // Hangul composes by arithmetic, so that properties do not tell.
  if ((c >= 0x1100 && c <= 0x11FF) || (c >= 0xAC00 && c <= 0xD7A3)) return false;
  const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return p->decomp_seqindex == UINT16_MAX && p->combining_class == 0 && (p->comb_index == UINT16_MAX || p->comb_index < 0x8000);
}

// In NFC these are what they are already, except for what may follow them.
bool is_composed_latin(char32_t c) { return c >= 0xA0 && c < 0x300; }

bool is_young(char32_t c) { return c >= not_normalized().front().first && contains(not_normalized(), c); }

utf8proc_option_t options_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc: return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case UnicodeForm::kNfd: return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case UnicodeForm::kNfkc: return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case UnicodeForm::kNfkd: break;
  }
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc's own ordering of marks bubbles, which is quadratic in a row of marks. Here they are sorted; it decomposes and composes only.
void append_form(std::string& out, std::string_view text, UnicodeForm form) {
  std::vector<utf8proc_int32_t> codes;
  const utf8proc_option_t options = options_of(form);
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    const auto c = static_cast<utf8proc_int32_t>(read_valid_char(p));
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, std::size(parts), options, nullptr);
    BATON_CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    codes.insert(codes.end(), parts, parts + n);
  }
  for (auto i = codes.begin(); i != codes.end();) {
    i = std::find_if(i, codes.end(), [](utf8proc_int32_t c) { return combining_class(c) != 0; });
    const auto marks_end = std::find_if(i, codes.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(i, marks_end, [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    i = marks_end;
  }
  utf8proc_ssize_t size = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) size = utf8proc_normalize_utf32(codes.data(), size, options);
  BATON_CHECK(size >= 0);
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
}

}  // namespace

std::string unicode_form(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  const char* copied = p;     // everything before has been written
  const char* run = nullptr;  // where a run that may change begins, once one is open
  const char* previous = p;   // the last character: what a mark may compose with
  while (p < end) {
    const char* const begin = p;
    const char32_t c = read_valid_char(p);
    const bool young = is_young(c);
    const bool inert = young || is_inert(c) || (form == UnicodeForm::kNfc && is_composed_latin(c));
    if (inert) {
      if (run != nullptr) {
        append_form(out, {run, static_cast<size_t>(begin - run)}, form);
        copied = begin;
        run = nullptr;
      }
      // Nothing composes with a young character: a run behind it begins behind it.
      previous = young ? p : begin;
    } else if (run == nullptr) {
      run = previous;
      out.append(copied, run);
    }
  }
  if (run != nullptr)
    append_form(out, {run, static_cast<size_t>(end - run)}, form);
  else
    out.append(copied, end);
  return out;
}

}  // namespace baton::text
