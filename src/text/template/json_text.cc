#include "text/template/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/number.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

class Writer {
 public:
  Writer(RenderState& s, const JsonStyle& style) : s_(s), style_(style), out_(s.meter()) {}

  void write(const Value& v, size_t level) {
    if (!s_.take_items(1)) return;
    switch (v.type()) {
      case Type::kNone: return out_.append("null", v.untrusted());
      case Type::kBool:
      case Type::kInt:
      case Type::kBigInt:
      case Type::kFloat: return out_.append(scalar(v), v.untrusted());
      case Type::kString: return write_text(v.as_text());
      case Type::kDict: return write_dict(v.as_dict(), level);
      case Type::kList:
        if (const List& list = v.as_list(); list.flavour == List::Flavour::kList || list.is_tuple()) return write_list(list, level);
        break;
      default: break;
    }
    s_.fail(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
  }
  Text finish() const { return out_.finish(); }

 private:
  std::string scalar(const Value& v) {
    if (v.is(Type::kBool)) return v.as_bool() ? "true" : "false";
    if (!v.is(Type::kFloat)) return integer_text(s_, v);
    const double d = v.as_float();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void write_text(const Text& text) {
    const std::string_view bytes = text.view();
    out_.append("\"", false);
    size_t copied = 0;
    for (const char *p = bytes.data(), *const end = p + bytes.size(); p < end;) {
      const auto at = static_cast<size_t>(p - bytes.data());
      const auto byte = static_cast<uint8_t>(*p);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !style_.ascii)) {
        ++p;
        continue;
      }
      out_.append(text, copied, at);
      out_.append(escape(read_valid_char(p)), text.untrusted_at(at));
      copied = static_cast<size_t>(p - bytes.data());
    }
    out_.append(text, copied, bytes.size());
    out_.append("\"", false);
  }

  static std::string escape(char32_t c) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    if (const size_t at = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos; at != std::string_view::npos)
      return {'\\', kTo[at]};
    if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    const auto rest = static_cast<uint32_t>(c - 0x10000);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  // In front of an item, or of the closing bracket.
  void new_line(size_t level) {
    if (!style_.indented) return;
    out_.append("\n", false);
    for (size_t i = 0; i < level; ++i) out_.append(style_.indent);
  }

  void write_list(const List& list, size_t level) {
    if (list.items.empty()) return out_.append("[]", false);
    out_.append("[", false);
    for (size_t i = 0; i < list.items.size() && !s_.failed(); ++i) {
      if (i > 0) out_.append(style_.between_items);
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    out_.append("]", false);
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) return out_.append("{}", false);
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) { return compare(s_, "<", a->first, b->first); });
    out_.append("{", false);
    bool first = true;
    for (const auto* entry : entries) {
      if (s_.failed()) return;
      if (!first) out_.append(style_.between_items);
      first = false;
      new_line(level + 1);
      write_key(entry->first);
      out_.append(style_.behind_key);
      write(entry->second, level + 1);
    }
    new_line(level);
    out_.append("}", false);
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_text(key.as_text());
    if (!key.is_number() && !key.is_none()) {
      s_.fail(fmt::format("keys of JSON must be str, int, float, bool or None, not {}", type_name(key)));
      return;
    }
    out_.append("\"", false);
    out_.append(key.is_none() ? "null" : scalar(key), key.untrusted());
    out_.append("\"", false);
  }

  RenderState& s_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Text to_json(RenderState& s, const Value& v, const JsonStyle& style) {
  Writer writer(s, style);
  writer.write(v, 0);
  return writer.finish();
}

}  // namespace baton::text::jinja
