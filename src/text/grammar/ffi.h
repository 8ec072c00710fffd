// Calls into xgrammar: finds the libraries, looks up methods by name, converts values.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/grammar/tvm_ffi_abi.h"

namespace baton::text {

class Ffi;

// A value of the library; owns its reference. Its Ffi is never unloaded, so it may outlive everything.
class FfiValue {
 public:
  FfiValue() = default;
  FfiValue(FfiValue&& other) noexcept : any_(other.any_), release_(other.release_) { other.any_ = {}; }
  FfiValue& operator=(FfiValue&& other) noexcept;
  ~FfiValue() { reset(); }

  static FfiValue of(int64_t value);
  static FfiValue of(bool value);
  static FfiValue of(tvm_ffi::Tensor* tensor);  // borrowed

  // As an argument; borrowed.
  const tvm_ffi::Any& any() const { return any_; }
  bool is_none() const { return any_.type_index == tvm_ffi::kNone; }
  int64_t integer() const { return any_.integer; }
  std::string text() const;  // of strings and bytes, else empty

 private:
  friend class Ffi;
  FfiValue(tvm_ffi::Any any, int (*release)(void*)) : any_(any), release_(release) {}
  void reset();

  tvm_ffi::Any any_;
  int (*release_)(void*) = nullptr;
};

// What a message of the library says, without the condition in its code that was found false.
std::string_view without_check(std::string_view message);

// A method, looked up once.
using FfiMethod = void*;

// The two libraries. One per process, loaded at first use and kept; every function may be called from any thread.
class Ffi {
 public:
  // The folders that are searched, in order: the environment's BATON_XGRAMMAR; ../lib/baton and ../../xgrammar beside the program. A folder
  // is laid out as pip does it: xgrammar/libxgrammar_bindings.so and tvm_ffi/lib/libtvm_ffi.so.
  static std::vector<std::filesystem::path> folders();
  // The libraries of `folder`; if it is empty, of the first of folders() that has them. The error says what to install.
  static Result<const Ffi*> load(const std::filesystem::path& folder = {});

  // `type` is the last part of a type's key: "GrammarMatcher".
  Result<FfiMethod> method(std::string_view type, std::string_view name) const;
  Result<FfiMethod> global(std::string_view name) const;

  Result<FfiValue> call(FfiMethod method, std::initializer_list<const FfiValue*> arguments) const;
  Result<FfiValue> call(FfiMethod method, std::span<const FfiValue> arguments) const;

  FfiValue string(std::string_view text) const;  // UTF-8
  FfiValue bytes(std::string_view bytes) const;

 private:
  Result<FfiValue> call(FfiMethod method, tvm_ffi::Any* arguments, size_t count) const;
  tvm_ffi::Functions functions_{};
};

}  // namespace baton::text
