#include "text/template/text_case.h"

#include "text/template/characters.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

// A walk over characters that rewrites each.
template <class F>
Text mapped(RenderState& s, const Text& text, F form_of) {
  TextBuilder out(s.meter());
  if (!s.take_items(text.size() / 2)) return out.finish();
  const std::string_view bytes = text.view();
  size_t copied = 0;
  for (const char *p = bytes.data(), *const end = p + bytes.size(); p < end;) {
    const auto begin = static_cast<size_t>(p - bytes.data());
    const char32_t c = read_valid_char(p);
    const auto behind = static_cast<size_t>(p - bytes.data());
    const CaseForm form = form_of(c, begin);
    if (form.count == 1 && form.chars[0] == c) continue;
    out.append(text, copied, begin);
    for (int i = 0; i < form.count; ++i) out.append_char(form.chars[i], text.untrusted_at(begin));
    copied = behind;
  }
  out.append(text, copied, bytes.size());
  return out.finish();
}

CaseForm lower_in(std::string_view bytes, char32_t c, size_t at) {
  if (c == 0x3A3) return {{is_final_sigma(bytes, at) ? char32_t{0x3C2} : char32_t{0x3C3}}, 1};
  return lower_of(c);
}

}  // namespace

Text titled(RenderState& s, const Text& text) {
  bool inside = false;
  return mapped(s, text, [&](char32_t c, size_t at) {
    const CaseForm form = inside ? lower_in(text.view(), c, at) : title_of(c);
    inside = is_cased(c);
    return form;
  });
}

Text case_swapped(RenderState& s, const Text& text) {
  return mapped(s, text, [&](char32_t c, size_t at) {
    return is_upper(c) ? lower_in(text.view(), c, at) : is_lower(c) ? upper_of(c) : CaseForm{{c}, 1};
  });
}

// As lower(), but what has no single lower form is taken apart.
Text case_folded(RenderState& s, const Text& text) {
  return mapped(s, text, [](char32_t c, size_t) {
    const CaseForm up = upper_of(c);
    if (up.count == 1) return c == 0x3C2 ? CaseForm{{0x3C3}, 1} : lower_of(c);
    CaseForm form;
    for (int i = 0; i < up.count; ++i) form.chars[form.count++] = lower_of(up.chars[i]).chars[0];
    return form;
  });
}

Text upper(RenderState& s, const Text& text) {
  return mapped(s, text, [](char32_t c, size_t) { return upper_of(c); });
}

Text lower(RenderState& s, const Text& text) {
  return mapped(s, text, [&](char32_t c, size_t at) { return lower_in(text.view(), c, at); });
}

Text capitalized(RenderState& s, const Text& text) {
  return mapped(s, text, [&](char32_t c, size_t at) { return at == 0 ? title_of(c) : lower_in(text.view(), c, at); });
}

Text title_words(RenderState& s, const Text& text) {
  const std::string_view v = text.view();
  size_t rest = 0;  // where the word goes on behind its first character
  bool inside = false;
  return mapped(s, text, [&](char32_t c, size_t at) {
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      inside = false;
      return CaseForm{{c}, 1};
    }
    if (inside) return lower_in(v.substr(rest), c, at - rest);
    inside = true;
    rest = at + read_char(v.data() + at, v.data() + v.size()).bytes;
    return upper_of(c);
  });
}

// all() of a class over the characters, false for empty text; for cased classes at least one must be cased.
Value is_class(const Text& text, std::string_view name) {
  const std::string_view v = text.view();
  if (name == "isascii") return Value::boolean(text.ascii());
  const bool cased_class = name == "islower" || name == "isupper";
  bool any = false, in_word = false;
  for (const char *p = v.data(), *const end = p + v.size(); p < end;) {
    const char32_t c = read_valid_char(p);
    bool fits = true;
    if (name == "isalnum") fits = is_alnum(c);
    if (name == "isalpha") fits = is_alpha(c);
    if (name == "isdecimal") fits = is_decimal(c);
    if (name == "isdigit") fits = is_digit(c);
    if (name == "isnumeric") fits = is_numeric(c);
    if (name == "isprintable") fits = is_printable(c);
    if (name == "isspace") fits = is_space(c);
    if (cased_class) fits = name == "islower" ? !is_upper(c) && !is_title(c) : !is_lower(c) && !is_title(c);
    if (name == "istitle") {
      if (is_upper(c) || is_title(c)) fits = !in_word;
      if (is_lower(c)) fits = in_word;
      in_word = is_cased(c);
    }
    if (!fits) return Value::boolean(false);
    any |= cased_class || name == "istitle" ? is_cased(c) : true;
  }
  return Value::boolean(any || name == "isprintable");
}

}  // namespace baton::text::jinja
