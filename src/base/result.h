// Result<T>: a value or an Error, or another room's kind of error. Fallible functions return it; broken invariants use check.h instead.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace baton {

// Says what went wrong, where, and what to do about it, in one or more complete sentences.
struct Error {
  enum class Kind { kInvalid, kNotFound, kIo, kExhausted, kUnsupported };
  Kind kind = Kind::kInvalid;
  std::string message;
};

template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const E& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, E> state_;
};

// Result without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace baton

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// Evaluates an expression of type Status or Result and returns its error from the enclosing function.
#define BATON_TRY(expr)                                                        \
  do {                                                                         \
    if (auto baton_try_ = (expr); !baton_try_.ok()) return baton_try_.error(); \
  } while (false)

// BATON_ASSIGN(auto x, f()): x is the value, or the enclosing function returns the error.
#define BATON_ASSIGN(lhs, expr) BATON_ASSIGN_INNER(lhs, expr, BATON_CONCAT(baton_result_, __LINE__))
#define BATON_ASSIGN_INNER(lhs, expr, name) \
  auto name = (expr);                       \
  if (!name.ok()) return name.error();      \
  lhs = std::move(name).value()
