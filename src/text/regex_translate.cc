// From Oniguruma's dialect (Ruby syntax, Unicode 16) to PCRE2's, as far as pre-tokenizer patterns go.
#include <fmt/format.h>

#include <array>

#include "text/regex.h"
#include "text/unicode_ranges.h"

namespace baton::text {

std::string class_items(CodeRanges ranges) {
  std::string items;
  for (const CodeRange& r : ranges) {
    items += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(r.first));
    if (r.last != r.first) items += fmt::format("-\\x{{{:x}}}", static_cast<uint32_t>(r.last));
  }
  return items;
}

namespace {

std::string all_but(CodeRanges ranges) {
  std::string items;
  uint32_t next = 0;
  const auto gap = [&](uint32_t end) {
    // Surrogates are no characters of UTF-8; a range may span them, but must not begin or end there.
    if (next < end) items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", next, end - 1);
  };
  for (const CodeRange& r : ranges) {
    gap(r.first);
    next = static_cast<uint32_t>(r.last) + 1;
  }
  gap(0x110000);
  return items;
}

// \p{category} and what it gained since PCRE2's tables; a category is one letter or two.
std::string category_items(std::string_view category) {
  std::string items = fmt::format("\\p{{{}}}", category);
  for (const NewRange& r : ranges_since_14())
    if (std::string_view(r.category).starts_with(category)) {
      const CodeRange range{r.first, r.last};
      items += class_items({&range, 1});
    }
  return items;
}

// Oniguruma's \w counts marks and connectors, PCRE2's only letters, numbers and the underscore.
std::string word_items() {
  std::string items;
  for (const std::string_view category : {"L", "M", "Nd", "Pc"}) items += category_items(category);
  return items;
}

struct Property {
  std::string_view long_name, short_name;
};
constexpr std::array kLongNames = {Property{"letter", "L"},
                                   Property{"number", "N"},
                                   Property{"punctuation", "P"},
                                   Property{"symbol", "S"},
                                   Property{"separator", "Z"},
                                   Property{"mark", "M"},
                                   Property{"other", "C"},
                                   Property{"uppercase_letter", "Lu"},
                                   Property{"lowercase_letter", "Ll"},
                                   Property{"titlecase_letter", "Lt"},
                                   Property{"modifier_letter", "Lm"},
                                   Property{"other_letter", "Lo"},
                                   Property{"nonspacing_mark", "Mn"},
                                   Property{"decimal_number", "Nd"}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        BATON_TRY(escape());
      } else if (in_class_) {
        BATON_TRY(inside_class());
      } else {
        if (c == '[') {
          in_class_ = true;
          class_begin_ = at_ + 1;
          if (class_begin_ < in_.size() && in_[class_begin_] == '^') {
            out_ += c;
            ++at_;
            ++class_begin_;
          }
        }
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  Error refuse(std::string_view what) const {
    return Error{Error::Kind::kUnsupported,
                 fmt::format("the pattern '{}' has {} at byte {}, which is not supported; a pattern without it is", in_, what, at_)};
  }

  Status inside_class() {
    const char c = in_[at_];
    if (c == '[') {
      if (in_.substr(at_, 2) != "[:") return refuse("a class inside a class");
      const size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) return refuse("an open '[:'");
      out_ += in_.substr(at_, end + 2 - at_);
      at_ = end + 2;
      return {};
    }
    if (in_.substr(at_, 2) == "&&") return refuse("'&&' inside a class");
    if (c == ']' && at_ != class_begin_) in_class_ = false;
    out_ += c;
    ++at_;
    return {};
  }

  // A backslash and what belongs to it.
  Status escape() {
    if (at_ + 1 >= in_.size()) return refuse("a backslash at its end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's': put_set(class_items(space_ranges()), false); break;
      case 'S':
        if (in_class_)
          out_ += all_but(space_ranges());
        else
          put_set(class_items(space_ranges()), true);
        break;
      case 'w': put_set(word_items(), false); break;
      case 'W':
        if (in_class_) return refuse("'\\W' inside a class");
        put_set(word_items(), true);
        break;
      case 'p':
      case 'P': return property();
      // Same letters, other meanings: hexadecimal digits there, horizontal space here; word edges by another \w; and so on.
      case 'b':
      case 'B':
      case 'h':
      case 'H':
      case 'K':
      case 'X':
      case 'y':
      case 'Y':
      case 'C':
      case 'Q':
      case 'E':
      case 'N':
      case 'O': return refuse(fmt::format("'\\{}'", c));
      default: out_ += in_.substr(at_, 2); break;
    }
    at_ += 2;
    return {};
  }

  // \p{Name}, \p{^Name}, \P{Name}
  Status property() {
    const size_t open = at_ + 2;
    const size_t close = in_.find('}', open);
    if (open >= in_.size() || in_[open] != '{' || close == std::string_view::npos) return refuse("a property without braces");
    std::string_view name = in_.substr(open + 1, close - open - 1);
    bool negated = in_[at_ + 1] == 'P';
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string short_name(name);
    for (const Property& p : kLongNames)
      if (lower(name) == p.long_name) short_name = p.short_name;
    // \P{L} within a class cannot be completed by adding members: there the library's own tables decide. So they do for scripts and others.
    if (short_name.empty() || short_name.size() > 2 || (in_class_ && negated))
      out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', short_name);
    else
      put_set(category_items(short_name), negated);
    at_ = close + 1;
    return {};
  }

  void put_set(const std::string& items, bool negated) {
    if (in_class_)
      out_ += items;
    else
      out_ += fmt::format("[{}{}]", negated ? "^" : "", items);
  }

  std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_begin_ = 0;  // where a ']' would still be a member
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace baton::text
