#include "text/template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/loop.h"

namespace baton::text::jinja {

using Kind = Expression::Kind;

const Value* Frame::find(Symbol name) const {
  for (const auto& [n, v] : variables)
    if (n == name) return &v;
  return nullptr;
}

void Frame::set(Symbol name, Value value) {
  for (auto& [n, v] : variables)
    if (n == name) {
      v = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
  charge(2 * sizeof variables.back());
}

Interpreter::Scope::~Scope() {
  if (frame_->kept) interpreter_.kept_.push_back(std::move(frame_));
}

// Expressions, statements and calls inside each other take stack.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& i) : interpreter_(i) {
    if (++i.depth_ > i.s_.meter().limits().depth)
      i.s_.fail(fmt::format("expressions, tags and calls lie inside each other more than {} deep", i.s_.meter().limits().depth),
                Failure::Kind::kLimit);
  }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

void Interpreter::run(TextBuilder& out) {
  const Scope scope(*this, nullptr);
  root_ = &*scope;
  run(ast_.body, *scope, out);
}

Interpreter::Flow Interpreter::run(const Body& body, Frame& frame, TextBuilder& out) {
  for (const Statement& st : body) {
    const Flow flow = run(st, frame, out);
    if (out.size() > s_.meter().limits().output_bytes)
      s_.fail(fmt::format("writes more than the {} bytes that a rendering may have", s_.meter().limits().output_bytes),
              Failure::Kind::kLimit);
    if (s_.failed()) return Flow::kBreak;
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run(const Statement& st, Frame& frame, TextBuilder& out) {
  const Depth depth(*this);
  s_.line = st.line;
  if (!s_.take_items(1)) return Flow::kBreak;
  switch (st.kind) {
    case Statement::Kind::kText: out.append(st.constant.as_text()); break;
    case Statement::Kind::kOutput: {
      const Value v = evaluate(*st.expression, frame);
      if (!s_.failed()) append_text(s_, out, v);
      break;
    }
    case Statement::Kind::kIf: return run_if(st, frame, out);
    case Statement::Kind::kFor: run_for(st, evaluate(*st.expression, frame), frame, 0, out); break;
    case Statement::Kind::kSet: {
      const Value v = evaluate(*st.expression, frame);
      s_.line = st.line;
      assign(*st.target, v, frame);
      break;
    }
    case Statement::Kind::kSetBlock: return run_set_block(st, frame);
    case Statement::Kind::kMacro: frame.set(st.symbol, make_macro(st, frame)); break;
    case Statement::Kind::kCall: run_call(st, frame, out); break;
    case Statement::Kind::kFilterBlock: run_filter_block(st, frame, out); break;
    case Statement::Kind::kWith: run_with(st, frame, out); break;
    case Statement::Kind::kScope: {
      const Scope scope(*this, st.at_root ? root_ : &frame);
      run(st.body, *scope, out);
      break;
    }
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const Statement& st, Frame& frame, TextBuilder& out) {
  for (const auto& [condition, body] : st.branches) {
    const bool taken = condition == nullptr || truth(evaluate(*condition, frame));
    if (s_.failed()) return Flow::kBreak;
    if (taken) return run(body, frame, out);
  }
  return Flow::kOn;
}

void Interpreter::run_for(const Statement& st, const Value& over, Frame& frame, int depth, TextBuilder& out) {
  s_.line = st.line;
  auto items = s_.failed() ? std::nullopt : s_.items_of(over);
  if (!items) return;
  auto loop = std::make_shared<Loop>(&s_.meter(), st, frame, depth);
  loop->charge(items->size() * sizeof(Value));
  loop->items = std::move(*items);
  if (st.condition != nullptr)
    loop->keep = [this, &st, &frame](const Value& v) {
      const Scope scope(*this, &frame);
      assign(*st.target, v, *scope);
      return !s_.failed() && truth(evaluate(*st.condition, *scope)) && !s_.failed();
    };
  const Value as_value{std::shared_ptr<Function>(loop)};
  bool any = false;  // an item's body was run to its end: after break or continue, else is still due, as in jinja2
  while (!s_.failed() && loop->advance()) {
    const Scope scope(*this, &frame);
    scope->set(given_.loop, as_value);
    s_.line = st.line;
    assign(*st.target, loop->current, *scope);
    if (s_.failed()) break;
    const Flow flow = run(st.body, *scope, out);
    if (flow == Flow::kBreak) break;
    any |= flow == Flow::kOn;
  }
  loop->end();
  if (any || s_.failed()) return;
  const Scope scope(*this, &frame);
  run(st.other, *scope, out);
}

Interpreter::Flow Interpreter::run_set_block(const Statement& st, Frame& frame) {
  TextBuilder text(s_.meter());
  Flow flow = Flow::kOn;
  {
    const Scope scope(*this, &frame);
    flow = run(st.body, *scope, text);
  }
  if (flow != Flow::kOn || s_.failed()) return flow;
  Value v = text.finish();
  if (st.expression != nullptr) v = filter(*st.expression, frame, v);
  if (!s_.failed()) assign(*st.target, v, frame);
  return Flow::kOn;
}

void Interpreter::run_call(const Statement& st, Frame& frame, TextBuilder& out) {
  const Expression& e = *st.expression;
  const Value f = evaluate(*e.parts[0], frame);
  Arguments a = arguments(e.call, frame);
  a.named.emplace_back(ArgumentName{"caller"}, make_macro(st, frame));
  s_.line = st.line;
  const Value v = call(f, std::move(a));
  if (!s_.failed()) append_text(s_, out, v);
}

void Interpreter::run_filter_block(const Statement& st, Frame& frame, TextBuilder& out) {
  TextBuilder text(s_.meter());
  const Scope scope(*this, &frame);
  run(st.body, *scope, text);
  if (s_.failed()) return;
  const Value v = filter(*st.expression, *scope, Value(text.finish()));
  if (!s_.failed() && !v.is_string()) s_.fail(fmt::format("a filter block ends in {}, not in text", type_name(v)));
  if (!s_.failed()) append_text(s_, out, v);
}

void Interpreter::run_with(const Statement& st, Frame& frame, TextBuilder& out) {
  const Scope scope(*this, &frame);
  for (const auto& [target, value] : st.assignments) assign(*target, evaluate(*value, frame), *scope);
  if (!s_.failed()) run(st.body, *scope, out);
}

void Interpreter::assign(const Expression& target, const Value& value, Frame& frame) {
  if (s_.failed()) return;
  if (target.kind == Kind::kName) return frame.set(target.symbol, value);
  if (target.kind == Kind::kTuple) {
    const auto items = s_.items_of(value);
    if (!items) return;
    if (items->size() != target.parts.size()) {
      s_.fail(fmt::format("{} values cannot be assigned to {} names", items->size(), target.parts.size()));
      return;
    }
    for (size_t i = 0; i < items->size(); ++i) assign(*target.parts[i], (*items)[i], frame);
    return;
  }
  const Value owner = look_up(target, frame);
  if (!owner.is(Type::kNamespace)) {
    s_.fail("only attributes of a namespace can be set");
    return;
  }
  Namespace& names = owner.as_namespace();
  for (auto& [n, v] : names.attributes)
    if (n == target.name) {
      v = value;
      return;
    }
  names.attributes.emplace_back(target.name, value);
  names.charge(2 * sizeof names.attributes.back());
}

Value Interpreter::make_macro(const Statement& st, Frame& frame) {
  for (Frame* f = &frame; f != nullptr && !f->kept; f = f->parent) {
    f->kept = true;
    f->charge(sizeof(Frame) + 64);
  }
  return s_.function<Macro>(&st, &frame);
}

Value Interpreter::evaluate(const Expression& e, Frame& frame) {
  const Depth depth(*this);
  s_.line = e.line;
  if (!s_.take_items(1)) return Value::undefined("");
  const auto part = [&](size_t i) { return evaluate(*e.parts[i], frame); };
  switch (e.kind) {
    case Kind::kConstant: return e.constant;
    case Kind::kName: return look_up(e, frame);
    case Kind::kList:
    case Kind::kTuple: return make_list(e, frame);
    case Kind::kDict: return make_dict(e, frame);
    case Kind::kAttribute: {
      const Value base = part(0);
      s_.line = e.line;
      return s_.failed() ? base : attribute(s_, base, e.name);
    }
    case Kind::kItem: return get_item(e, frame);
    case Kind::kCall: {
      const Value f = part(0);
      Arguments a = arguments(e.call, frame);
      s_.line = e.line;
      return call(f, std::move(a));
    }
    case Kind::kFilter: return filter(e, frame, {});
    case Kind::kTest: {
      const Value v = part(0);
      const Arguments a = arguments(e.call, frame);
      s_.line = e.line;
      return Value::boolean(apply_test(s_, e.name, v, a));
    }
    case Kind::kNegative:
    case Kind::kPositive: {
      const Value v = part(0);
      if (v.is(Type::kFloat)) return e.kind == Kind::kNegative ? Value::real(-v.as_float(), v.untrusted()) : v;
      if (v.is_number()) return arithmetic(s_, e.kind == Kind::kNegative ? "-" : "+", Value::integer(0), v);
      return s_.fail(v.is_undefined()
                         ? v.why()
                         : fmt::format("bad operand type for unary {}: '{}'", e.kind == Kind::kNegative ? '-' : '+', type_name(v)));
    }
    case Kind::kNot: return Value::boolean(!truth(part(0)));
    case Kind::kAnd: {
      const Value v = part(0);
      return truth(v) && !s_.failed() ? part(1) : v;
    }
    case Kind::kOr: {
      const Value v = part(0);
      return truth(v) || s_.failed() ? v : part(1);
    }
    case Kind::kArithmetic: {
      const Value a = part(0), b = part(1);
      s_.line = e.line;
      return arithmetic(s_, e.name, a, b);
    }
    case Kind::kCompare: return compare_chain(e, frame);
    case Kind::kConcat: return concatenate(e, frame);
    case Kind::kIf: {
      const bool condition = truth(part(0));
      if (s_.failed()) return Value::undefined("");
      if (condition) return part(1);
      return e.parts[2] != nullptr ? part(2) : Value::undefined("an inline if without else has no value");
    }
    case Kind::kSlice:
    case Kind::kNamespaceAttribute: break;
  }
  return s_.fail("this expression has no value");
}

Value Interpreter::look_up(const Expression& e, Frame& frame) {
  for (const Frame* f = &frame; f != nullptr; f = f->parent)
    if (const Value* v = f->find(e.symbol)) return *v;
  const Value& v = context_[static_cast<size_t>(e.symbol)];
  return v.is_missing() ? Value::undefined(fmt::format("'{}' is undefined", ast_.symbols[static_cast<size_t>(e.symbol)])) : v;
}

Value Interpreter::make_list(const Expression& e, Frame& frame) {
  std::vector<Value> items;
  if (!s_.room_for(e.parts.size())) return Value::undefined("");
  for (const ExpressionPtr& p : e.parts) items.push_back(evaluate(*p, frame));
  return s_.list(std::move(items), e.kind == Kind::kTuple ? List::Flavour::kTuple : List::Flavour::kList);
}

Value Interpreter::make_dict(const Expression& e, Frame& frame) {
  auto dict = s_.new_dict();
  for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    const Value key = evaluate(*e.parts[i], frame), value = evaluate(*e.parts[i + 1], frame);
    if (s_.failed()) break;
    if (!hashable(key)) return s_.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    dict->set(key, value);
  }
  return s_.dict(std::move(dict));
}

Value Interpreter::get_item(const Expression& e, Frame& frame) {
  const Value base = evaluate(*e.parts[0], frame);
  const Expression& key = *e.parts[1];
  if (key.kind != Kind::kSlice) {
    const Value k = evaluate(key, frame);
    s_.line = e.line;
    return s_.failed() ? base : item(s_, base, k);
  }
  Value at[3];
  for (size_t i = 0; i < 3; ++i)
    if (key.parts[i] != nullptr) at[i] = evaluate(*key.parts[i], frame);
  s_.line = e.line;
  return s_.failed() ? base : slice(s_, base, at[0], at[1], at[2]);
}

Value Interpreter::compare_chain(const Expression& e, Frame& frame) {
  Value left = evaluate(*e.parts[0], frame);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1], frame);
    s_.line = e.line;
    if (!compare(s_, e.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::concatenate(const Expression& e, Frame& frame) {
  std::vector<Value> values;
  for (const ExpressionPtr& p : e.parts) values.push_back(evaluate(*p, frame));
  s_.line = e.line;
  if (s_.failed()) return Value::undefined("");
  TextBuilder out(s_.meter(), to_text(s_, values[0]));
  for (size_t i = 1; i < values.size(); ++i) append_text(s_, out, values[i]);
  return out.finish();
}

Value Interpreter::filter(const Expression& e, Frame& frame, const Value& input) {
  const Depth depth(*this);
  if (s_.failed()) return Value::undefined("");
  const Expression* before = e.parts[0].get();
  Value v = input;
  if (before != nullptr) v = before->kind == Kind::kFilter ? filter(*before, frame, input) : evaluate(*before, frame);
  const Arguments a = arguments(e.call, frame);
  s_.line = e.line;
  return s_.take_items(1) ? apply_filter(s_, e.name, v, a) : Value::undefined("");
}

Arguments Interpreter::arguments(const CallArguments& call, Frame& frame) {
  Arguments a;
  for (const ExpressionPtr& p : call.positional) a.positional.push_back(evaluate(*p, frame));
  for (const auto& [name, p] : call.named) a.named.emplace_back(ArgumentName{name}, evaluate(*p, frame));
  if (call.star != nullptr)
    if (const auto items = s_.items_of(evaluate(*call.star, frame))) a.positional.insert(a.positional.end(), items->begin(), items->end());
  if (call.star_star != nullptr) {
    const Value v = evaluate(*call.star_star, frame);
    if (!v.is(Type::kDict)) {
      s_.fail("what stands behind ** is no mapping");
      return a;
    }
    for (const auto& [key, value] : v.as_dict().entries) {
      if (!s_.take_items(8) || !key.is_string()) {
        s_.fail("keywords must be strings");
        break;
      }
      a.named.emplace_back(ArgumentName{std::string(key.view()), key}, value);
    }
  }
  return a;
}

Value Interpreter::call(const Value& f, Arguments a) {
  if (s_.failed()) return Value::undefined("");
  if (f.is(Type::kFunction)) {
    Function& function = f.as_function();
    if (function.kind == Function::Kind::kMacro) return call_macro(static_cast<const Macro&>(function), std::move(a));
    if (function.kind == Function::Kind::kLoop) return call_loop(static_cast<Loop&>(function), a);
  }
  return call_function(s_, f, a);
}

Value Interpreter::call_macro(const Macro& macro, Arguments a) {
  const Depth depth(*this);
  const Statement& st = *macro.node;
  const std::string_view name = st.constant.view();
  const Scope scope(*this, macro.frame);
  const auto take_named = [&](std::string_view wanted) {
    const auto at = std::find_if(a.named.begin(), a.named.end(), [&](const auto& n) { return n.first.text == wanted; });
    if (at == a.named.end()) return Value();
    Value v = std::move(at->second);
    a.named.erase(at);
    return v;
  };
  for (size_t i = 0; i < st.parameters.size(); ++i) {
    const Statement::Parameter& p = st.parameters[i];
    Value v = i < a.positional.size() ? a.positional[i] : take_named(p.name);
    if (v.is_missing())
      v = p.fallback != nullptr ? evaluate(*p.fallback, *scope) : Value::undefined(fmt::format("parameter '{}' was not provided", p.name));
    scope->set(p.symbol, std::move(v));
  }
  if (st.uses_caller && scope->find(given_.caller) == nullptr) {
    Value caller = take_named("caller");
    scope->set(given_.caller, caller.is_missing() || caller.is_none() ? Value::undefined("No caller defined") : std::move(caller));
  }
  if (st.uses_kwargs) {
    auto rest = s_.new_dict();
    for (const auto& [n, v] : a.named) rest->set(s_.key_of(n), v);
    scope->set(given_.kwargs, s_.dict(std::move(rest)));
  } else if (!a.named.empty()) {
    return s_.fail(fmt::format("macro '{}' takes no keyword argument '{}'", name, a.named[0].first.text));
  }
  const size_t taken = std::min(st.parameters.size(), a.positional.size());
  if (st.uses_varargs)
    scope->set(given_.varargs, s_.list({a.positional.begin() + static_cast<ptrdiff_t>(taken), a.positional.end()}, List::Flavour::kTuple));
  else if (a.positional.size() > taken)
    return s_.fail(fmt::format("macro '{}' takes not more than {} arguments", name, st.parameters.size()));
  TextBuilder out(s_.meter());
  if (!s_.failed()) run(st.body, *scope, out);
  return out.finish();
}

Value Interpreter::call_loop(Loop& loop, const Arguments& a) {
  if (loop.frame == nullptr || !loop.node->recursive)
    return s_.fail("The loop must have the 'recursive' marker to be called, and must not be over");
  if (a.positional.size() != 1 || !a.named.empty()) return s_.fail("loop() takes one list");
  TextBuilder out(s_.meter());
  run_for(*loop.node, a.positional[0], *loop.frame, loop.depth0 + 1, out);
  return out.finish();
}

}  // namespace baton::text::jinja
