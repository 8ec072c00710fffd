// What a template can call.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace baton::text::jinja {

struct Statement;
struct Frame;
class RenderState;

// The name of an argument. One that `**` brought may be anybody's text, and keeps its origin when it becomes a key again.
struct ArgumentName {
  std::string text;
  Value key{};  // missing: the template wrote the name
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<ArgumentName, Value>> named;
};

struct Function : Container, std::enable_shared_from_this<Function> {
  enum class Kind : uint8_t { kBuiltin, kMethod, kMacro, kLoop, kCycler, kJoiner };
  Function(Meter* meter, Kind k) : Container(meter), kind(k) { charge(128); }
  // Its attributes, and its methods when called; missing where there is none.
  virtual Value attribute(RenderState&, std::string_view) { return {}; }
  virtual Value call_method(RenderState&, std::string_view, const Arguments&) { return {}; }
  const Kind kind;
};

// A function that every template knows, such as range.
struct Builtin : Function {
  explicit Builtin(std::string_view n) : Function(nullptr, Kind::kBuiltin), name(n) {}
  const std::string_view name;
};

// The method of a value, such as 'x'.upper, before it is called.
struct Method : Function {
  Method(Meter* meter, Value s, std::string_view n) : Function(meter, Kind::kMethod), self(std::move(s)), name(n) { hold(self); }
  const Value self;
  const std::string_view name;
};

// A macro, or the body of a call block. `frame` is where it was written; the rendering keeps it.
struct Macro : Function {
  Macro(Meter* meter, const Statement* s, Frame* f) : Function(meter, Kind::kMacro), node(s), frame(f) {}
  const Statement* const node;
  Frame* const frame;
};

struct Cycler : Function {
  Cycler(Meter* meter, std::vector<Value> all) : Function(meter, Kind::kCycler), items(std::move(all)) {
    for (const Value& v : items) hold(v);
  }
  Value attribute(RenderState& s, std::string_view name) override;
  Value call_method(RenderState& s, std::string_view name, const Arguments& a) override;
  const std::vector<Value> items;
  size_t next = 0;
};

struct Joiner : Function {
  Joiner(Meter* meter, Value s) : Function(meter, Kind::kJoiner), separator(std::move(s)) {}
  const Value separator;
  bool used = false;
};

}  // namespace baton::text::jinja
