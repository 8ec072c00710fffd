// The loop object: where a for loop stands.
#pragma once

#include <functional>

#include "text/template/ast.h"
#include "text/template/interpreter.h"

namespace baton::text::jinja {

// Items are taken one by one; one ahead only where the template asks what comes next, all where it asks how many there are.
struct Interpreter::Loop : Function {
  Loop(Meter* meter, const Statement& s, Frame& around, int d) : Function(meter, Kind::kLoop), node(&s), frame(&around), depth0(d) {}

  // False at the end; otherwise current has the item.
  bool advance();
  // When the loop is over: what it held must not live on in values that still name it.
  void end();

  Value attribute(RenderState& s, std::string_view name) override;
  Value call_method(RenderState& s, std::string_view name, const Arguments& a) override;

  const Statement* node;
  Frame* frame;  // where the loop stands; null once it is over
  const int depth0;
  std::vector<Value> items;
  std::function<bool(const Value&)> keep;  // the loop's own filter, or empty
  Value current, previous;                 // missing in front of the first

 private:
  Value take();
  const Value& peek();
  size_t length();
  size_t at_ = 0;
  int64_t index0_ = -1;
  bool peeked_ = false;
  Value ahead_;  // missing at the end
  std::vector<Value> last_changed_;
  bool ever_changed_ = false;
};

}  // namespace baton::text::jinja
