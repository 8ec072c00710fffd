// What every part of one rendering shares: the budget, the first error, the place in the template.
#pragma once

#include <ctime>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/function.h"
#include "text/template/meter.h"
#include "text/template/value.h"

namespace baton::text::jinja {

// Why a rendering ended early.
struct Failure {
  enum class Kind { kRaised, kRuntime, kLimit };
  Kind kind = Kind::kRuntime;
  std::string message;  // of kRaised: the words of raise_exception
  int line = 0;         // of the template
};

// Errors are sticky: the first one stays, operations after it return undefined at once, and loops ask failed() and end.
class RenderState {
 public:
  RenderState(const Limits& limits, const std::tm& now) : meter_(limits), now_(now) {}

  bool failed() { return failure_.has_value() || note_limit(); }
  const std::optional<Failure>& failure() const { return failure_; }
  Value fail(std::string message, Failure::Kind kind = Failure::Kind::kRuntime);
  // Python's words for a value that an operation does not take.
  Value fail_undefined(const Value& v) { return fail(v.why()); }

  Meter& meter() { return meter_; }
  const std::tm& now() const { return now_; }  // local time of strftime_now
  int line = 1;

  // For `n` items handled. False once failed.
  bool take_items(size_t n) { return meter_.take_steps(1 + static_cast<int64_t>(n / 4)) && !failed(); }
  // For `n` values about to be made. False once failed; nothing may be made then.
  bool room_for(size_t n);

  Value list(std::vector<Value> items, List::Flavour flavour = List::Flavour::kList);
  Value iterator(std::vector<Value> items);
  std::shared_ptr<Dict> new_dict() { return std::make_shared<Dict>(&meter_); }
  Value dict(std::shared_ptr<Dict> filled);
  template <class F, class... A>
  Value function(A&&... arguments) {
    auto f = std::make_shared<F>(&meter_, std::forward<A>(arguments)...);
    return f->depth > kMostValueDepth ? fail_depth() : Value(std::shared_ptr<Function>(std::move(f)));
  }
  Value new_namespace();
  Value text(std::string_view bytes, bool untrusted = false);
  // An argument's name as the key of an object.
  Value key_of(const ArgumentName& name) { return name.key.is_missing() ? text(name.text) : name.key; }

  // Whatever can be walked as a list of its items; nothing, and an error, for what cannot. Iterators are used up.
  std::optional<std::vector<Value>> items_of(const Value& v);

 private:
  bool note_limit();
  Value fail_depth();
  Meter meter_;  // before what is charged to it
  std::tm now_;
  std::optional<Failure> failure_;
  // Namespaces can hold each other in circles; they are emptied at the end.
  struct Namespaces {
    std::vector<std::shared_ptr<Namespace>> all;
    ~Namespaces();
  } namespaces_;
};

// The arguments of a call in the order of `names`, missing where not given; an error for unknown, doubled and too many ones.
// `required` is how many of the first must be there.
std::vector<Value> bind_arguments(RenderState& s, std::string_view what, const Arguments& a, std::span<const std::string_view> names,
                                  size_t required);

// Text as Python's str() and repr() write it; origins are kept.
Text to_text(RenderState& s, const Value& v);
void append_text(RenderState& s, TextBuilder& out, const Value& v);
void append_repr(RenderState& s, TextBuilder& out, const Value& v);
void append_ascii(RenderState& s, TextBuilder& out, const Value& v);  // repr with escapes for all that is not ASCII
std::string integer_text(RenderState& s, const Value& v);             // of whole numbers

}  // namespace baton::text::jinja
