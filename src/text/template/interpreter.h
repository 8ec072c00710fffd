// Walks the tree of a template: one rendering on one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/render_state.h"

namespace baton::text::jinja {

// The names of one scope. Macros written in it keep it, and what is around it, to the end of the rendering.
struct Frame : Object {
  Frame(Meter* meter, Frame* around) : Object(meter), parent(around) {}
  Frame* const parent;
  std::vector<std::pair<Symbol, Value>> variables;
  bool kept = false;

  const Value* find(Symbol name) const;
  void set(Symbol name, Value value);
};

class Interpreter {
 public:
  // `context` has a value or missing for every symbol of `ast`; `symbols` the numbers of the names that bodies of loops and macros get.
  struct GivenNames {
    Symbol loop, caller, varargs, kwargs;
  };
  Interpreter(const Ast& ast, const std::vector<Value>& context, const GivenNames& given, RenderState& state)
      : ast_(ast), context_(context), given_(given), s_(state) {}

  // Appends to `out`; errors are in the state.
  void run(TextBuilder& out);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  // A frame that lives as long as this object, or longer if a macro keeps it.
  class Scope {
   public:
    Scope(Interpreter& i, Frame* around) : interpreter_(i), frame_(std::make_unique<Frame>(&i.s_.meter(), around)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();
    Frame& operator*() const { return *frame_; }
    Frame* operator->() const { return frame_.get(); }

   private:
    Interpreter& interpreter_;
    std::unique_ptr<Frame> frame_;
  };
  struct Loop;
  class Depth;

  Flow run(const Body& body, Frame& frame, TextBuilder& out);
  Flow run(const Statement& st, Frame& frame, TextBuilder& out);
  Flow run_if(const Statement& st, Frame& frame, TextBuilder& out);
  void run_for(const Statement& st, const Value& over, Frame& frame, int depth, TextBuilder& out);
  Flow run_set_block(const Statement& st, Frame& frame);
  void run_call(const Statement& st, Frame& frame, TextBuilder& out);
  void run_filter_block(const Statement& st, Frame& frame, TextBuilder& out);
  void run_with(const Statement& st, Frame& frame, TextBuilder& out);
  void assign(const Expression& target, const Value& value, Frame& frame);
  Value make_macro(const Statement& st, Frame& frame);

  Value evaluate(const Expression& e, Frame& frame);
  Value look_up(const Expression& e, Frame& frame);
  Value make_dict(const Expression& e, Frame& frame);
  Value make_list(const Expression& e, Frame& frame);
  Value get_item(const Expression& e, Frame& frame);
  Value compare_chain(const Expression& e, Frame& frame);
  Value concatenate(const Expression& e, Frame& frame);
  // `input` stands where a filter has nothing in front.
  Value filter(const Expression& e, Frame& frame, const Value& input);
  Arguments arguments(const CallArguments& call, Frame& frame);
  Value call(const Value& f, Arguments a);
  Value call_macro(const Macro& macro, Arguments a);
  Value call_loop(Loop& loop, const Arguments& a);

  const Ast& ast_;
  const std::vector<Value>& context_;
  const GivenNames given_;
  RenderState& s_;
  Frame* root_ = nullptr;
  std::vector<std::unique_ptr<Frame>> kept_;
  int depth_ = 0;
};

}  // namespace baton::text::jinja
