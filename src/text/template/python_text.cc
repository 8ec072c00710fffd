// Values as text: what str() and repr() of Python write.
#include <fmt/format.h>

#include "text/template/characters.h"
#include "text/template/number.h"
#include "text/template/render_state.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

std::string escape_of(char32_t c) {
  return fmt::format(fmt::runtime(c < 0x100 ? "\\x{:02x}" : c < 0x10000 ? "\\u{:04x}" : "\\U{:08x}"), static_cast<uint32_t>(c));
}

void append_quoted(TextBuilder& out, const Text& text) {
  const std::string_view bytes = text.view();
  const bool twice = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = twice ? '"' : '\'';
  out.append({&quote, 1}, false);
  size_t copied = 0;
  for (const char *p = bytes.data(), *const end = p + bytes.size(); p < end;) {
    const auto at = static_cast<size_t>(p - bytes.data());
    const char32_t c = read_valid_char(p);
    const bool special = c == static_cast<char32_t>(quote) || c == '\\';
    if (!special && is_printable(c)) continue;
    out.append(text, copied, at);
    const bool untrusted = text.untrusted_at(at);
    if (special) {
      out.append("\\", untrusted);
      out.append(text, at, at + 1);
    } else {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : escape_of(c), untrusted);
    }
    copied = static_cast<size_t>(p - bytes.data());
  }
  out.append(text, copied, bytes.size());
  out.append({&quote, 1}, false);
}

std::string function_text(const Function& f) {
  switch (f.kind) {
    case Function::Kind::kBuiltin: return fmt::format("<function {}>", static_cast<const Builtin&>(f).name);
    case Function::Kind::kMethod: return fmt::format("<built-in method {}>", static_cast<const Method&>(f).name);
    case Function::Kind::kMacro: return "<Macro>";
    case Function::Kind::kLoop: return "<LoopContext>";
    case Function::Kind::kCycler: return "<Cycler>";
    case Function::Kind::kJoiner: return "<Joiner>";
  }
  return "<function>";
}

void append_list(RenderState& s, TextBuilder& out, const List& list) {
  using Flavour = List::Flavour;
  if (list.flavour == Flavour::kRange) {
    const auto& r = list.range;
    out.append(r[2] == 1 ? fmt::format("range({}, {})", r[0], r[1]) : fmt::format("range({}, {}, {})", r[0], r[1], r[2]), false);
    return;
  }
  const bool view = !list.indexable();
  if (view)
    out.append(list.flavour == Flavour::kKeys ? "dict_keys(" : list.flavour == Flavour::kItems ? "dict_items(" : "dict_values(", false);
  out.append(list.is_tuple() ? "(" : "[", false);
  bool first = true;
  for (const Value& v : list.items) {
    if (!s.take_items(1)) return;
    if (!first) out.append(", ", false);
    first = false;
    append_repr(s, out, v);
  }
  if (list.is_tuple() && list.items.size() == 1) out.append(",", false);
  out.append(list.is_tuple() ? ")" : "]", false);
  if (view) out.append(")", false);
}

}  // namespace

std::string integer_text(RenderState& s, const Value& v) {
  if (!v.is(Type::kBigInt)) return fmt::format("{}", v.as_int());
  s.take_items(msb(abs(v.as_big())) * 2);
  return integer_digits(v);
}

void append_repr(RenderState& s, TextBuilder& out, const Value& v) {
  switch (v.type()) {
    case Type::kMissing:
    case Type::kUndefined: out.append("Undefined", false); break;
    case Type::kNone: out.append("None", v.untrusted()); break;
    case Type::kBool: out.append(v.as_bool() ? "True" : "False", v.untrusted()); break;
    case Type::kInt:
    case Type::kBigInt: out.append(integer_text(s, v), v.untrusted()); break;
    case Type::kFloat: out.append(float_repr(v.as_float()), v.untrusted()); break;
    case Type::kString:
      if (v.markup()) out.append("Markup(", false);
      append_quoted(out, v.as_text());
      if (v.markup()) out.append(")", false);
      break;
    case Type::kList: append_list(s, out, v.as_list()); break;
    case Type::kDict: {
      out.append("{", false);
      bool first = true;
      for (const auto& [key, value] : v.as_dict().entries) {
        if (!s.take_items(2)) return;
        if (!first) out.append(", ", false);
        first = false;
        append_repr(s, out, key);
        out.append(": ", false);
        append_repr(s, out, value);
      }
      out.append("}", false);
      break;
    }
    case Type::kIterator: out.append("<generator object>", false); break;
    case Type::kNamespace: out.append("<Namespace>", false); break;
    case Type::kFunction: out.append(function_text(v.as_function()), false); break;
  }
}

void append_ascii(RenderState& s, TextBuilder& out, const Value& v) {
  TextBuilder repr(s.meter());
  append_repr(s, repr, v);
  const Text text = repr.finish();
  const std::string_view bytes = text.view();
  size_t copied = 0;
  for (const char *p = bytes.data(), *const end = p + bytes.size(); p < end;) {
    const auto at = static_cast<size_t>(p - bytes.data());
    const char32_t c = read_valid_char(p);
    if (c < 0x80) continue;
    out.append(text, copied, at);
    out.append(escape_of(c), text.untrusted_at(at));
    copied = static_cast<size_t>(p - bytes.data());
  }
  out.append(text, copied, bytes.size());
}

void append_text(RenderState& s, TextBuilder& out, const Value& v) {
  if (v.is_string())
    out.append(v.as_text());
  else if (!v.is_undefined() && !v.is_missing())
    append_repr(s, out, v);
}

Text to_text(RenderState& s, const Value& v) {
  if (v.is_string()) return v.as_text();
  TextBuilder out(s.meter());
  append_text(s, out, v);
  return out.finish();
}

}  // namespace baton::text::jinja
