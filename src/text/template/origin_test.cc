// Origins against a naive model: random expressions over text of mixed origin, computed here character by character.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/test_seed.h"
#include "text/template/template.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

struct Char {
  char32_t code;
  bool untrusted;
  bool operator==(const Char&) const = default;
};
using Chars = std::vector<Char>;

Chars trusted(std::string_view text) {
  Chars out;
  for (const char *p = text.data(), *const end = p + text.size(); p < end;) out.push_back({read_valid_char(p), false});
  return out;
}

Chars operator+(Chars a, const Chars& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool codes_equal(const Chars& a, size_t at, const Chars& b) {
  if (at + b.size() > a.size()) return false;
  for (size_t i = 0; i < b.size(); ++i)
    if (a[at + i].code != b[i].code) return false;
  return true;
}

Chars replaced(const Chars& text, const Chars& from, const Chars& to) {
  Chars out;
  for (size_t i = 0; i < text.size();) {
    if (codes_equal(text, i, from)) {
      out = out + to;
      i += from.size();
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

Chars each(const Chars& text, const std::function<std::string(char32_t)>& form) {
  Chars out;
  for (const Char& c : text)
    for (Char made : trusted(form(c.code))) {
      made.untrusted = c.untrusted;
      out.push_back(made);
    }
  return out;
}

std::string plain(char32_t c) {
  std::string out;
  append_utf8(out, c);
  return out;
}

// The text of a template's expression, and what it should come to.
struct Case {
  std::string source;
  Chars value;
};

class Expressions {
 public:
  explicit Expressions(uint64_t seed) : random_(seed) {
    for (const char* name : {"a", "b", "c"}) variables_.emplace_back(name, some_text());
  }

  Case expression(int depth) {
    if (depth == 0) return leaf();
    const Case x = expression(depth - 1);
    const size_t n = x.value.size();
    switch (below(19)) {
      case 0: {
        const Case y = expression(depth - 1);
        return {"(" + x.source + " ~ " + y.source + ")", x.value + y.value};
      }
      case 1: {
        const Case y = expression(depth - 1);
        return {"(" + x.source + " + " + y.source + ")", x.value + y.value};
      }
      case 2: {
        const size_t i = below(n + 1), j = i + below(n - i + 1);
        return {x.source + "[" + std::to_string(i) + ":" + std::to_string(j) + "]", Chars(at(x, i), at(x, j))};
      }
      case 3: return {x.source + "[::-1]", Chars(x.value.rbegin(), x.value.rend())};
      case 4: {
        Chars out;
        for (size_t i = 1; i < n; i += 2) out.push_back(x.value[i]);
        return {x.source + "[1::2]", out};
      }
      case 5: return {"(" + x.source + " * 2)", x.value + x.value};
      case 6: {
        size_t i = 0, j = n;
        while (i < j && is_blank(x.value[i])) ++i;
        while (j > i && is_blank(x.value[j - 1])) --j;
        return {"(" + x.source + " | trim)", Chars(at(x, i), at(x, j))};
      }
      case 7: {
        const Case y = leaf();
        return {x.source + ".replace('l', " + y.source + ")", replaced(x.value, trusted("l"), y.value)};
      }
      case 8: {
        const Case y = leaf();
        return {"(" + x.source + ".split('e') | join(" + y.source + "))", replaced(x.value, trusted("e"), y.value)};
      }
      case 9:
        return {"(" + x.source + " | upper)",
                each(x.value, [](char32_t c) { return plain((c >= 'a' && c <= 'z') || c == U'é' ? c - 32 : c); })};
      case 10:
        return {"(" + x.source + " | tojson)", trusted("\"") + each(x.value, [](char32_t c) {
                                                 return c == '"' || c == '\\' ? "\\" + plain(c) : c == '\n' ? "\\n" : plain(c);
                                               }) + trusted("\"")};
      case 11: {
        const auto has = [&](char32_t c) {
          return std::any_of(x.value.begin(), x.value.end(), [&](const Char& v) { return v.code == c; });
        };
        const char32_t quote = has('\'') && !has('"') ? '"' : '\'';
        const Chars inside = each(x.value, [&](char32_t c) {
          return c == quote || c == '\\' ? "\\" + plain(c) : c == '\n' ? "\\n" : plain(c);
        });
        return {"([" + x.source + "] | string)", trusted("[" + plain(quote)) + inside + trusted(plain(quote) + "]")};
      }
      case 12:
        return {"((" + x.source + " | e) ~ '')", each(x.value, [](char32_t c) {
                  return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '\'' ? "&#39;" : c == '"' ? "&#34;" : plain(c);
                })};
      case 13: {
        const Case y = leaf();
        return {"('%s<%5s>' % (" + x.source + ", " + y.source + "))",
                x.value + trusted("<" + std::string(y.value.size() < 5 ? 5 - y.value.size() : 0, ' ')) + y.value + trusted(">")};
      }
      case 14: {
        const Case y = leaf();
        return {"'{1}|{0:*<6}'.format(" + x.source + ", " + y.source + ")",
                y.value + trusted("|") + x.value + trusted(std::string(n < 6 ? 6 - n : 0, '*'))};
      }
      case 15: {
        Chars out;
        for (size_t i = 0; i < n; ++i) out = out + trusted(i > 0 ? "." : "") + Chars{x.value[i]};
        return {"(" + x.source + " | list | join('.'))", out};
      }
      case 16: return {"{'k': [" + x.source + "]}['k'][0]", x.value};
      case 17: {
        const Case y = expression(depth - 1);
        return {"(" + x.source + " if " + y.source + " else " + y.source + ")", y.value.empty() ? y.value : x.value};
      }
      default: return {"(" + x.source + " | batch(2) | map('join') | join)", x.value};
    }
  }

  const std::vector<std::pair<std::string, Value>>& variables() const { return variables_; }
  std::vector<std::pair<std::string, Value>> untagged() const {
    auto out = variables_;
    for (auto& [name, value] : out) value = Text::of(value.view());
    return out;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  static Chars::const_iterator at(const Case& c, size_t i) { return c.value.begin() + static_cast<ptrdiff_t>(i); }
  static bool is_blank(const Char& c) { return c.code == ' ' || c.code == '\n'; }

  Value some_text() {
    static const std::vector<std::string> kPieces = {"hello", " ", "\n", "<|user|>", "日本", "é", "'", "\"", "\\", "le", "&"};
    auto buffer = std::make_shared<TextBuffer>();
    for (size_t n = below(6); n > 0; --n) buffer->append(kPieces[below(kPieces.size())], below(2) == 0);
    const size_t end = buffer->bytes.size();
    return Text(std::move(buffer), 0, end);
  }

  Case leaf() {
    if (below(4) == 0) return {"'lit '", trusted("lit ")};
    const auto& [name, value] = variables_[below(variables_.size())];
    Chars chars;
    const Text text = value.as_text();
    text.for_each_run(0, text.size(), [&](size_t begin, size_t end, bool untrusted) {
      for (Char c : trusted(text.view().substr(begin, end - begin))) chars.push_back({c.code, untrusted});
    });
    return {name, chars};
  }

  std::mt19937_64 random_;
  std::vector<std::pair<std::string, Value>> variables_;
};

Chars chars_of(const Rendered& r) {
  Chars out;
  for (const char *p = r.text.data(), *const end = p + r.text.size(); p < end;) {
    const auto at = static_cast<size_t>(p - r.text.data());
    const bool untrusted =
        std::any_of(r.untrusted.begin(), r.untrusted.end(), [&](const TextRange& t) { return t.begin <= at && at < t.end; });
    out.push_back({read_valid_char(p), untrusted});
  }
  return out;
}

std::string shown(const Chars& chars) {
  std::string out;
  bool before = false;
  for (const Char& c : chars) {
    if (c.untrusted != before) out += c.untrusted ? "[[" : "]]";
    before = c.untrusted;
    append_utf8(out, c.code);
  }
  return out + (before ? "]]" : "");
}

// The same expression as it stands, through a variable, a namespace, a macro, a block, and character by character.
std::vector<std::string> around(const std::string& e) {
  return {"{{ " + e + " }}",
          "{% set v = " + e + " %}{{ v }}",
          "{% set ns = namespace(v='') %}{% for i in [1] %}{% set ns.v = " + e + " %}{% endfor %}{{ ns.v }}",
          "{% macro m(v) %}{{ v }}{% endmacro %}{{ m(" + e + ") }}",
          "{% set v %}{{ " + e + " }}{% endset %}{{ v }}",
          "{% for ch in " + e + " %}{{ ch }}{% endfor %}",
          "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ " + e + " }}{% endcall %}",
          "{% set ns = namespace(v='') %}{% for ch in " + e + " %}{% set ns.v = ns.v + ch %}{% endfor %}{{ ns.v }}"};
}

TEST(Origins, FollowEveryCharacter) {
  const uint64_t seed = test_seed();
  std::mt19937_64 seeds(seed);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t one = seeds();
    Expressions make(one);
    const Case c = make.expression(1 + i % 3);
    const auto sources = around(c.source);
    const std::string& source = sources[static_cast<size_t>(i) % sources.size()];
    const auto program = Template::parse(source);
    ASSERT_TRUE(program.ok()) << source << ": " << program.error().message;
    const auto result = program->render(make.variables(), {});
    ASSERT_TRUE(std::holds_alternative<Rendered>(result)) << source << ": " << std::get<Failure>(result).message;
    const Rendered& out = std::get<Rendered>(result);
    EXPECT_EQ(chars_of(out), c.value) << "BATON_SEED=" << seed << ", case " << one << ": " << source << "\n  is       "
                                      << shown(chars_of(out)) << "\n  expected " << shown(c.value);
    const auto untagged = program->render(make.untagged(), {});
    EXPECT_EQ(std::get<Rendered>(untagged).text, out.text) << source;
    EXPECT_TRUE(std::get<Rendered>(untagged).untrusted.empty()) << source;
    if (HasFailure()) break;
  }
}

Rendered render(std::string_view source, std::string_view json) {
  const auto program = Template::parse(source);
  EXPECT_TRUE(program.ok()) << program.error().message;
  const auto v = parse_json(json, true, "test");
  EXPECT_TRUE(v.ok());
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [name, value] : v->as_dict().entries) variables.emplace_back(name.view(), value);
  const auto result = program->render(variables, {});
  if (const auto* f = std::get_if<Failure>(&result)) ADD_FAILURE() << source << ": " << f->message;
  return std::holds_alternative<Rendered>(result) ? std::get<Rendered>(result) : Rendered{};
}

std::string bracketed(std::string_view source, std::string_view json) { return shown(chars_of(render(source, json))); }

TEST(Origins, NumbersStayUntrusted) {
  EXPECT_EQ(bracketed("a{{ n }}b", R"({"n": 12})"), "a[[12]]b");
  EXPECT_EQ(bracketed("a{{ n + 1 }}b", R"({"n": 12})"), "a[[13]]b");
  EXPECT_EQ(bracketed("a{{ s | int }}b", R"({"s": "7"})"), "a[[7]]b");
  EXPECT_EQ(bracketed("{{ '%d|%s' % (n, 5) }}.", R"({"n": 12})"), "[[12]]|5.");
  EXPECT_EQ(bracketed("{{ d | tojson }}.", R"({"d": {"k": [1, null, true]}})"), "{\"[[k]]\": [[[1]], [[null]], [[true]]]}.");
  // What is decided by looking at text is the template's.
  EXPECT_EQ(bracketed("{{ s | length }}{{ s == 'x' }}.", R"({"s": "7"})"), "1False.");
}

TEST(Origins, NamesOfSpreadArgumentsStayUntrusted) {
  const std::string_view d = R"({"d": {"<u>": 1}})";
  EXPECT_EQ(bracketed("{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ m(**d) }}.", d), "[[<u>]].");
  EXPECT_EQ(bracketed("{{ dict(t=2, **d) }}.", d), "{'t': 2, '[[<u>]]': [[1]]}.");
  EXPECT_EQ(bracketed("{{ '%s' | format(**d) }}.", d), "{'[[<u>]]': [[1]]}.");
}

TEST(Origins, GrowingTextTakesLinearTime) {
  // A buffer that is appended to in place: 200,000 characters one by one, with the origin of each.
  const Rendered out = render(
      "{% set ns = namespace(t='') %}{% for i in range(100000) %}{% set ns.t = ns.t + s ~ '.' %}{% endfor %}{{ ns.t }}", R"({"s": "x"})");
  EXPECT_EQ(out.text.size(), 200'000U);
  EXPECT_EQ(out.untrusted.size(), 100'000U);
}

TEST(Origins, TwoTextsGrowFromOneHead) {
  EXPECT_EQ(
      bracketed(
          "{% set h = 'a' ~ s %}{% set x = h ~ '1' %}{% set y = h ~ s %}{% set z = x ~ x %}{{ h }} {{ x }} {{ y }} {{ z }} {{ h ~ h ~ h }}",
          R"({"s": "u"})"),
      "a[[u]] a[[u]]1 a[[uu]] a[[u]]1a[[u]]1 a[[u]]a[[u]]a[[u]]");
}

}  // namespace
}  // namespace baton::text::jinja
