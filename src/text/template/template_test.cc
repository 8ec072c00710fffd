// The language beyond the recorded renderings: constructs of real chat templates, what is refused, limits.
#include "text/template/template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace baton::text::jinja {
namespace {

using Variables = std::vector<std::pair<std::string, Value>>;

Variables variables_of(std::string_view json) {
  const auto v = parse_json(json, true, "test");
  EXPECT_TRUE(v.ok()) << v.error().message;
  Variables out;
  for (const auto& [name, value] : v->as_dict().entries) out.emplace_back(name.view(), value);
  return out;
}

std::variant<Rendered, Failure> run(std::string_view source, std::string_view json = "{}", const RenderOptions& options = {}) {
  const auto program = Template::parse(source);
  if (!program.ok()) return Failure{Failure::Kind::kRuntime, "read: " + program.error().message, 0};
  return program->render(variables_of(json), options);
}

std::string text(std::string_view source, std::string_view json = "{}") {
  const auto r = run(source, json);
  return std::holds_alternative<Rendered>(r) ? std::get<Rendered>(r).text : "error: " + std::get<Failure>(r).message;
}

// Expects that reading fails, at a line, with these words.
void expect_refused(std::string_view source, int line, std::string_view words) {
  const auto program = Template::parse(source);
  ASSERT_FALSE(program.ok()) << source;
  EXPECT_TRUE(program.error().message.starts_with("line " + std::to_string(line) + ": ")) << program.error().message;
  EXPECT_NE(program.error().message.find(words), std::string::npos) << program.error().message;
}

void expect_failure(std::string_view source, int line, std::string_view words, std::string_view json = "{}") {
  const auto r = run(source, json);
  ASSERT_TRUE(std::holds_alternative<Failure>(r)) << source << " gives " << std::get<Rendered>(r).text;
  EXPECT_EQ(std::get<Failure>(r).line, line) << source << ": " << std::get<Failure>(r).message;
  EXPECT_NE(std::get<Failure>(r).message.find(words), std::string::npos) << source << ": " << std::get<Failure>(r).message;
}

void expect_limit(std::string_view source, std::string_view words, std::string_view json = "{}") {
  const auto start = std::chrono::steady_clock::now();
  RenderOptions small;  // so that sanitizers are done soon
  small.limits.steps = 2'000'000;
  small.limits.live_bytes = size_t{16} << 20;
  const auto r = run(source, json, small);
  ASSERT_TRUE(std::holds_alternative<Failure>(r)) << source << " gives text";
  EXPECT_EQ(std::get<Failure>(r).kind, Failure::Kind::kLimit) << source << ": " << std::get<Failure>(r).message;
  EXPECT_NE(std::get<Failure>(r).message.find(words), std::string::npos) << source << ": " << std::get<Failure>(r).message;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << source;
}

TEST(Template, WhiteSpaceAroundTags) {
  EXPECT_EQ(text("a\n{% if true %}\n  b\n{% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(text("a\n  {% if true %}b{% endif %}\n"), "a\nb");
  EXPECT_EQ(text("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(text("  {%+ if true %}b{% endif +%}\nc"), "  b\nc");
  EXPECT_EQ(text("x\n  {# gone #}\ny {#- and -#} z"), "x\nyz");
  EXPECT_EQ(text("{% raw %}\n{{ a }} {% b %}\n{% endraw %}\nc"), "\n{{ a }} {% b %}\nc");
  EXPECT_EQ(text("{{ 'a' }}\n{{ 'b' -}}\n c"), "a\nbc");
  EXPECT_EQ(text("a\r\nb\rc\r\n"), "a\nb\nc");
}

// What the templates of model families are made of, in our own words.
TEST(Template, ConstructsOfModelFamilies) {
  // Roles joined to markers; the turn after the last user.
  EXPECT_EQ(text("{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{{ m.content | trim }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% "
                 "endfor %}",
                 R"({"messages": [{"role": "user", "content": " a "}, {"role": "assistant", "content": "b"}]})"),
            "<|user|>a\n<|assistant|>b");
  // Reasoning cut out of the content, as several families do.
  EXPECT_EQ(text("{%- set content = c %}{%- if '</think>' in content %}{%- set r = "
                 "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
                 "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}[{{ r }}][{{ content }}]",
                 R"({"c": "<think>\nhm\n</think>\n\nyes"})"),
            "[hm][yes]");
  // State kept over a loop; alternation checked.
  EXPECT_EQ(text("{% set ns = namespace(system='', first=true) %}{% for m in ms %}{% if m.role == 'system' %}{% set ns.system = ns.system "
                 "~ m.content %}"
                 "{% elif (m.role == 'user') != ns.first %}{{ raise_exception('turns') }}{% else %}{% set ns.first = not ns.first %}{% "
                 "endif %}{% endfor %}{{ ns.system }}",
                 R"({"ms": [{"role": "system", "content": "s"}, {"role": "user"}, {"role": "assistant"}]})"),
            "s");
  // Types of schemas by a macro that calls itself, with defaults and a nullable mark.
  EXPECT_EQ(text("{%- macro kind(spec, required, nullable=false) -%}{%- if spec.type == 'array' -%}{%- if spec['items'] -%}{{ "
                 "kind(spec['items'], required) }}[]"
                 "{%- else -%}any[]{%- endif -%}{%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}{{ "
                 "spec.type | join(' | ') }}"
                 "{%- elif spec.enum is defined -%}{{ '\"' + spec.enum | join('\" | \"') + '\"' }}{%- else -%}{{ spec.type }}{%- endif "
                 "-%}{{ ' | null' if nullable }}{%- endmacro -%}"
                 "{{ kind({'type': 'array', 'items': {'type': ['string', 'null']}}, []) }} {{ kind({'enum': ['a', 'b']}, [], true) }} {{ "
                 "kind({'type': 'array'}, []) }}"),
            // A missing key `items` is the method: true, and it has no type. That is what jinja2 gives.
            "string | null[] \"a\" | \"b\" | null []");
  // Parameters rendered as tags; other keys of the schema.
  EXPECT_EQ(text("{% for name, p in f.parameters.properties | items %}<{{ name }}>{% for k in p if k not in ['type'] %}{{ k }}={{ p[k] | "
                 "tojson | safe }};{% endfor %}</{{ name }}>{% endfor %}",
                 R"({"f": {"parameters": {"properties": {"x": {"type": "integer", "minimum": 1, "enum": [1, 2]}}}}})"),
            "<x>minimum=1;enum=[1, 2];</x>");
  // Arguments as text or objects.
  EXPECT_EQ(text("{{ a if a is string else a | tojson }} {{ b if b is string else b | tojson(ensure_ascii=False) }}",
                 R"({"a": "{\"x\": 1}", "b": {"x": "é"}})"),
            "{\"x\": 1} {\"x\": \"é\"}");
  // Dates; content parts; filters in chains.
  EXPECT_EQ(
      text("{{ parts | selectattr('type', 'equalto', 'text') | map(attribute='text') | list | join('') }}{{ strftime_now is defined }}",
           R"({"parts": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]})"),
      "abTrue");
  EXPECT_EQ(text("{%- set m = ms | selectattr('role', '==', 'user') | list | last -%}{{ m.content }}{{ (ms | first).content[:2] }}{{ "
                 "ms[-1]['content'][::-1] }}",
                 R"({"ms": [{"role": "user", "content": "abc"}, {"role": "tool", "content": "xyz"}]})"),
            "abcabzyx");
  // A block of text as a variable; a call block around a turn.
  EXPECT_EQ(text("{% set head %}A{{ 1 }}\n{% endset %}{% macro turn(role, end='$') %}<{{ role }}>{{ caller() }}{{ end }}{% endmacro %}{% "
                 "call turn('u', end='!') %}{{ head }}x{% endcall %}"),
            "<u>A1\nx!");
  EXPECT_EQ(text("{% generation %}{% set x = 1 %}a{% endgeneration %}{{ x is defined }}"), "aFalse");
  EXPECT_EQ(text("{{ messages[0].tool_calls is defined and messages[0].tool_calls is not none }}{{ messages[0].get('name', 'n') }}",
                 R"({"messages": [{"tool_calls": null}]})"),
            "Falsen");
}

TEST(Template, ScopesOfJinja) {
  EXPECT_EQ(text("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}"), "12;13;1");
  EXPECT_EQ(text("{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% with x = 3 %}{{ x }}{% endwith %}{{ x }}"), "232");
  EXPECT_EQ(text("{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}"), "1");
  EXPECT_EQ(text("{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% set ns = 1 %}{{ m() }}{% endfor %}"), "12");
  EXPECT_EQ(text("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% if i == 1 %}{% set ns.m = m %}{% "
                 "endif %}{% endfor %}{{ ns.m() }}"),
            "1");
  EXPECT_EQ(
      text("{% set loop_over = [1] %}{% for x in loop_over %}{% for y in [1] %}{{ loop.index }}{% endfor %}{{ loop.last }}{% endfor %}"),
      "1True");
  EXPECT_EQ(
      text(
          "{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}{{ ns.l.previtem is defined }}"),
      "2False");
  // After break and continue, else is due.
  EXPECT_EQ(text("{% for i in [1] %}{% continue %}{% else %}e{% endfor %}{% for i in [1] %}{% break %}{% else %}e{% endfor %}{% for i in "
                 "[1] %}{% else %}e{% endfor %}"),
            "ee");
  // The filter of a loop sees what the body changed.
  EXPECT_EQ(text("{% set ns = namespace(go=true) %}{% for i in range(9) if ns.go %}{{ i }}{% if i == 2 %}{% set ns.go = false %}{% endif "
                 "%}{% endfor %}"),
            "012");
  EXPECT_EQ(text("{% for i in range(9) if i is odd %}{{ loop.index }}/{{ loop.length }}{{ loop.nextitem }} {% endfor %}"),
            "1/43 2/45 3/47 4/4 ");
  EXPECT_EQ(text("{% for x in t recursive %}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif %}{{ loop.depth }}{% endfor %}",
                 R"({"t": [{"n": 1, "c": [{"n": 2}, {"n": 3}]}]})"),
            "1(2232)1");
}

TEST(Template, NumbersOfPython) {
  EXPECT_EQ(
      text("{{ 2 ** 64 }} {{ 9223372036854775807 + 1 }} {{ -(2 ** 63) }} {{ 10 ** 20 // 3 }} {{ -7 % 3 }} {{ 7 // -2 }} {{ 2 ** 0.5 }}"),
      "18446744073709551616 9223372036854775808 -9223372036854775808 33333333333333333333 2 -4 1.4142135623730951");
  EXPECT_EQ(text("{{ n }} {{ n | tojson }} {{ f }} {{ big }}",
                 R"({"n": 123456789012345678901234567890, "f": 1e22, "big": 18446744073709551615})"),
            "123456789012345678901234567890 123456789012345678901234567890 1e+22 18446744073709551615");
  EXPECT_EQ(text("{{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 5e-324 }} {{ 1e308 * 10 }} {{ 0.1 + 0.2 }} {{ 100.0 }}"),
            "1000000000000000.0 1e+16 0.0001 1e-05 5e-324 inf 0.30000000000000004 100.0");
  EXPECT_EQ(text("{{ 2.675 | round(2) }} {{ 1234 | round(-2) }} {{ 2.5 | round | int }} {{ 7 | round(1, 'ceil') }}"), "2.67 1200 2 7.0");
}

TEST(Template, RefusesWhatItDoesNotKnow) {
  expect_refused("a\n{% include 'x' %}", 2, "include");
  expect_refused("{% import 'x' as y %}", 1, "import");
  expect_refused("{% from 'x' import y %}", 1, "from");
  expect_refused("{% extends 'x' %}", 1, "extends");
  expect_refused("\n\n{% do x.append(1) %}", 3, "do");
  expect_refused("{% frobnicate %}", 1, "frobnicate");
  expect_refused("{{ x\n| frobnicate }}", 2, "frobnicate");
  expect_refused("{{ x is frobnicated }}", 1, "frobnicated");
  expect_refused("{{ frobnicate(1) }}", 1, "frobnicate");
  expect_refused("{{ x.frobnicate(1) }}", 1, "frobnicate");
  expect_refused("{{ lipsum() }}", 1, "lipsum");
  expect_refused("{{ x | map('frobnicate') }}", 1, "frobnicate");
  expect_refused("{{ x | selectattr('a', 'frobnicated') }}", 1, "frobnicated");
  expect_refused("{{ x | select('frobnicated') }}", 1, "frobnicated");
  expect_refused("{{ x | random }}", 1, "random");
  expect_refused("{{ x.encode('utf8') }}", 1, "encode");
  expect_refused("{{ __import__('os') }}", 1, "__import__");
  expect_refused("{% if x %}", 1, "endif");
  expect_refused("{% endfor %}", 1, "endfor");
  expect_refused("{% for x in y %}{% endif %}{% endfor %}", 1, "endif");
  expect_refused("{{ 1 + }}", 1, "expression");
  expect_refused("{{ (1 }}", 1, "')'");
  expect_refused("{{ 'abc }}", 1, "string");
  expect_refused("a\nb {{", 2, "end");
  expect_refused("{# a", 1, "comment");
  expect_refused("{% raw %}", 1, "endraw");
  expect_refused("{% break %}", 1, "break");
  expect_refused("{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", 1, "continue");
  expect_refused("{{ '\\ud800' }}", 1, "character");
  expect_refused("{% set true = 1 %}", 1, "true");
  expect_refused("{{ f(a=1, 2) }}", 1, "order");
  expect_refused("{{ " + std::string(300, '(') + "1" + std::string(300, ')') + " }}", 1, "deep");
  expect_refused("{{ x" + std::string(1000, '-') + "1 }}", 1, "deep");
  EXPECT_FALSE(Template::parse("\xFF").ok());
  EXPECT_FALSE(Template::parse(std::string(kMostTemplateBytes + 1, 'x')).ok());
  // What the template gives itself, or asks about, it may call.
  EXPECT_EQ(text("{% macro m() %}1{% endmacro %}{% set ns = namespace(f=m) %}{{ ns.f() }}{{ {'g': m}.g() }}{% if ask is defined %}{{ ask() "
                 "}}{% endif %}"),
            "11");
}

TEST(Template, ErrorsNameTheLine) {
  expect_failure("a\n{{ x.y.z }}", 2, "'dict object' has no attribute 'y'", R"({"x": {}})");
  expect_failure("\n\n{{ nope.y }}", 3, "'nope' is undefined");
  expect_failure("{{ 1 + 'a' }}", 1, "unsupported operand");
  expect_failure("{{ 1 // 0 }}", 1, "zero");
  expect_failure("{{ (10 ** 400) | float }}", 1, "too large for a float");
  expect_failure("{{ (10 ** 400) * 1.0 }}", 1, "too large for a float");
  expect_failure("{{ 'x' < 1 }}", 1, "not supported");
  expect_failure("{{ nope() }}{% set nope = 1 %}", 1, "'nope' is undefined");
  expect_failure("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", 2, "not more than");
  expect_failure("{% set l = [1] %}\n{{ l.append(2) }}", 2, "changes a list");
  expect_failure("{% set d = {} %}{% set d.x = 1 %}", 1, "namespace");
  expect_failure("{% for a, b in [1] %}{% endfor %}", 1, "not iterable");
  expect_failure("{% for a, b in [[1]] %}{% endfor %}", 1, "values cannot");
  expect_failure("{{ {[1]: 2} }}", 1, "unhashable");
  expect_failure("{{ nope | tojson }}", 1, "not JSON serializable");
  const auto raised = run("{{ raise_exception('no ' ~ 1) }}");
  ASSERT_TRUE(std::holds_alternative<Failure>(raised));
  EXPECT_EQ(std::get<Failure>(raised).kind, Failure::Kind::kRaised);
  EXPECT_EQ(std::get<Failure>(raised).message, "no 1");
}

TEST(Template, EverythingIsBounded) {
  expect_limit("{{ 'x' * 1000000000 }}", "bytes of memory");
  expect_limit("{{ [0] * 1000000000 }}", "bytes of memory");
  expect_limit("{{ [[0] * 1000] * 1000000 }}", "");
  expect_limit("{{ range(1000000000) }}", "range");
  expect_limit("{{ 9 ** 99999 }}", "too large");
  expect_limit("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "deep");
  expect_limit("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep");
  expect_limit("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps");
  expect_limit("{% set ns = namespace(t='x') %}{% for i in range(100) %}{% set ns.t = ns.t + ns.t %}{% endfor %}", "memory");
  expect_limit("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "memory");
  expect_limit("{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l] %}{% endfor %}", "inside each other");
  expect_limit("{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}", "");
  expect_limit("{{ '%1000000000d' % 1 }}", "memory");
  expect_limit("{{ '{:>1000000000}'.format(1) }}", "memory");
  expect_limit("{{ 'x'.center(1000000000) }}", "steps");
  expect_limit("{{ ('a' * 1000000).replace('', 'b' * 1000) }}", "memory");
  expect_limit("{{ (['x' * 1000000] * 1000) | join }}", "memory");
  // Lists that are small, and take forever to walk.
  const std::string woven =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(50) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor "
      "%}";
  expect_limit(woven + "{{ ns.a == ns.b }}", "steps");
  expect_limit(woven + "{{ ns.a | string | length }}", "");
  expect_limit(woven + "{{ ns.a | tojson }}", "");
  expect_limit(woven + "{{ ns.a in [ns.b] }}", "steps");
  // Each of these is slow by itself, and takes steps for it.
  expect_limit("{% for i in range(100000) %}{% set y = (10 ** 4900) // (10 ** 2450) %}{% endfor %}", "steps");
  expect_limit("{% for i in range(100000) %}{% set y = ('9' * 4900) | int %}{% endfor %}", "steps");
  expect_limit("{% for i in range(100000) %}{% set y = '%.4000f' % 1e308 %}{% endfor %}", "steps");
  std::string many = R"({"d": {"k": 1)";
  for (int i = 0; i < 10'000; ++i) many += ",\"k" + std::to_string(i) + "\": 1";
  expect_limit("{{ ('{k}' * 10000).format(**d) }}", "steps", many + "}}");
  expect_limit("{% for i in range(10000) %}{{ 'x'.format_map(d) }}{% endfor %}", "steps", many + "}}");
  // Text in text, both from messages, in linear time.
  const std::string a(400'000, 'a');
  EXPECT_EQ(text("{{ b in a }}{{ a.find(b) }}{{ a.replace(b, '') | length }}",
                 R"({"a": ")" + a + R"(", "b": ")" + a.substr(0, 200'000) + R"(b"})"),
            "False-1400000");
}

TEST(Template, CirclesComeApart) {
  EXPECT_EQ(text("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n, {'k': n}] %}{{ n.l == n.l }}{{ n == n }}"), "TrueTrue");
  EXPECT_EQ(text("{% set n = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set n.m = m %}{% for x in [1] %}{% set n.loop = loop "
                 "%}{% endfor %}a"),
            "a");
}

TEST(Template, ManyThreadsRenderOneTemplate) {
  const auto program = Template::parse(
      "{% set ns = namespace(t='x') %}{% for m in l %}{% set ns.t = ns.t ~ m ~ 'lit' ~ {'k': 'v'} %}{% endfor %}{{ ns.t }}");
  ASSERT_TRUE(program.ok());
  const Variables variables = variables_of(R"({"l": ["a", "b", 3]})");
  const std::string expected = std::get<Rendered>(program->render(variables, {})).text;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) EXPECT_EQ(std::get<Rendered>(program->render(variables, {})).text, expected);
    });
  for (std::thread& t : threads) t.join();
}

TEST(Json, IsReadExactlyOrRefused) {
  const auto shown = [](std::string_view json) {
    const auto v = parse_json(json, false, "x");
    return v.ok() ? text("{{ v | tojson }}", "{\"v\": " + std::string(json) + "}") : "error";
  };
  EXPECT_EQ(shown("[1, -0, 1.0, 1e2, 0.1, 18446744073709551616, -9223372036854775809]"),
            "[1, 0, 1.0, 100.0, 0.1, 18446744073709551616, -9223372036854775809]");
  EXPECT_EQ(shown(R"({"b": 1, "a": 2, "b": 3})"), R"({"b": 3, "a": 2})");
  EXPECT_EQ(shown(R"("a\u0000b\ud83d\udc4d")"), R"("a\u0000b👍")");
  EXPECT_EQ(shown(R"("\ud800")"), "error");
  EXPECT_EQ(shown("\"\xFF\""), "error");
  EXPECT_EQ(shown(std::string(200, '[') + std::string(200, ']')), "error");
  EXPECT_EQ(shown(std::string(40'000, '1')), "error");
  for (const char* infinite : {"1e400", "-1e400", "[1e309]", R"({"a": {"b": 1.0e999}})"}) EXPECT_EQ(shown(infinite), "error") << infinite;
  EXPECT_EQ(shown("1 2"), "error");
  EXPECT_EQ(shown(""), "error");
}

}  // namespace
}  // namespace baton::text::jinja
