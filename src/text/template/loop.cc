#include "text/template/loop.h"

#include "text/template/builtins.h"

namespace baton::text::jinja {

Value Interpreter::Loop::take() {
  while (at_ < items.size()) {
    Value v = items[at_++];
    if (!keep || keep(v)) return v;
  }
  return {};
}

const Value& Interpreter::Loop::peek() {
  if (!peeked_) ahead_ = take();
  peeked_ = true;
  return ahead_;
}

bool Interpreter::Loop::advance() {
  Value next = peeked_ ? std::move(ahead_) : take();
  peeked_ = false;
  if (next.is_missing()) return false;
  previous = std::move(current);
  current = std::move(next);
  ++index0_;
  return true;
}

void Interpreter::Loop::end() {
  frame = nullptr;
  keep = nullptr;
  items.clear();
  last_changed_.clear();
  current = previous = ahead_ = Value();
  peeked_ = true;
}

// How many items there are in all, once the filter has seen each.
size_t Interpreter::Loop::length() {
  if (!keep) return items.size();
  std::vector<Value> rest;
  if (!peek().is_missing()) rest.push_back(ahead_);
  for (Value v = take(); !v.is_missing(); v = take()) rest.push_back(std::move(v));
  const size_t n = static_cast<size_t>(index0_ + 1) + rest.size();
  // What is left is known to pass. Items in front of it are not needed any more, only counted.
  keep = nullptr;
  std::vector<Value> all(static_cast<size_t>(index0_ + 1), Value::none());
  at_ = all.size();
  all.insert(all.end(), rest.begin(), rest.end());
  items = std::move(all);
  ahead_ = Value();
  peeked_ = false;
  return n;
}

Value Interpreter::Loop::attribute(RenderState& s, std::string_view name) {
  const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(peek().is_missing());
  if (name == "length") return number(length());
  if (name == "revindex") return Value::integer(static_cast<int64_t>(length()) - index0_);
  if (name == "revindex0") return Value::integer(static_cast<int64_t>(length()) - index0_ - 1);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem") return previous.is_missing() ? Value::undefined("there is no previous item") : previous;
  if (name == "nextitem") return peek().is_missing() ? Value::undefined("there is no next item") : ahead_;
  if (name == "cycle") return s.function<Method>(Value(shared_from_this()), "cycle");
  if (name == "changed") return s.function<Method>(Value(shared_from_this()), "changed");
  return {};
}

Value Interpreter::Loop::call_method(RenderState& s, std::string_view name, const Arguments& a) {
  if (!a.named.empty()) return s.fail("cycle() and changed() take values without names");
  if (name == "cycle") {
    if (a.positional.empty()) return s.fail("no items for cycling given");
    return a.positional[static_cast<size_t>(index0_) % a.positional.size()];
  }
  bool same = ever_changed_ && last_changed_.size() == a.positional.size();
  for (size_t i = 0; same && i < a.positional.size(); ++i) same = compare(s, "==", last_changed_[i], a.positional[i]);
  if (same) return Value::boolean(false);
  ever_changed_ = true;
  last_changed_ = a.positional;
  return Value::boolean(true);
}

}  // namespace baton::text::jinja
