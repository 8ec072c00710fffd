#include "text/grammar/ffi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/check.h"

namespace baton::text {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFfiFile = "tvm_ffi/lib/libtvm_ffi.so";
constexpr const char* kGrammarFile = "xgrammar/libxgrammar_bindings.so";

tvm_ffi::ByteArray array_of(std::string_view text) { return {text.data(), text.size()}; }
std::string_view view_of(const tvm_ffi::ByteArray& array) { return {array.data, array.size}; }

// What stands behind an object's header.
template <class Content>
const Content& content_of(const void* object) {
  return *reinterpret_cast<const Content*>(static_cast<const char*>(object) + sizeof(tvm_ffi::ObjectHeader));
}

Error unusable(const std::string& what) {
  return {Error::Kind::kUnsupported,
          fmt::format("structured output is not available: {}. Run scripts/setup grammar, or name a folder that has the PyPI packages "
                      "xgrammar 0.2.9 and apache-tvm-ffi 0.1.15 in the environment's BATON_XGRAMMAR",
                      what)};
}

}  // namespace

FfiValue& FfiValue::operator=(FfiValue&& other) noexcept {
  if (this != &other) {
    reset();
    any_ = other.any_;
    release_ = other.release_;
    other.any_ = {};
  }
  return *this;
}

void FfiValue::reset() {
  if (any_.type_index >= tvm_ffi::kFirstObject && release_ != nullptr) release_(any_.pointer);
  any_ = {};
}

FfiValue FfiValue::of(int64_t value) {
  tvm_ffi::Any any;
  any.type_index = tvm_ffi::kInt;
  any.integer = value;
  return {any, nullptr};
}

FfiValue FfiValue::of(bool value) {
  FfiValue result = of(int64_t{value ? 1 : 0});
  result.any_.type_index = tvm_ffi::kBool;
  return result;
}

FfiValue FfiValue::of(tvm_ffi::Tensor* tensor) {
  tvm_ffi::Any any;
  any.type_index = tvm_ffi::kDlTensorPtr;
  any.pointer = tensor;
  return {any, nullptr};
}

std::string FfiValue::text() const {
  if (any_.type_index == tvm_ffi::kSmallStr || any_.type_index == tvm_ffi::kSmallBytes) return {any_.bytes, any_.small_length};
  if (any_.type_index == tvm_ffi::kStr || any_.type_index == tvm_ffi::kBytes)
    return std::string(view_of(content_of<tvm_ffi::ByteArray>(any_.pointer)));
  return {};
}

std::vector<fs::path> Ffi::folders() {
  std::vector<fs::path> result;
  if (const char* named = std::getenv("BATON_XGRAMMAR"); named != nullptr && *named != '\0') result.emplace_back(named);
  std::error_code failed;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path(); !failed && !program.empty()) {
    result.push_back(program / "../lib/baton");
    result.push_back(program / "../../xgrammar");
  }
  return result;
}

Result<const Ffi*> Ffi::load(const fs::path& folder) {
  static std::mutex mutex;
  static std::unique_ptr<const Ffi> loaded;
  const std::scoped_lock lock(mutex);
  if (loaded != nullptr) return loaded.get();

  fs::path chosen = folder;
  if (chosen.empty()) {
    std::string searched;
    for (const fs::path& candidate : folders()) {
      std::error_code ignored;
      if (chosen.empty() && fs::exists(candidate / kGrammarFile, ignored) && fs::exists(candidate / kFfiFile, ignored)) chosen = candidate;
      searched += (searched.empty() ? "" : ", ") + candidate.lexically_normal().string();
    }
    if (chosen.empty()) return unusable(fmt::format("the library xgrammar was not found in {}", searched));
  }
  // The first with its names visible to the second, which needs it. Neither is ever closed: both keep threads and global state.
  void* ffi = ::dlopen((chosen / kFfiFile).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (ffi == nullptr) return unusable(fmt::format("the library cannot be loaded: {}", ::dlerror()));
  auto result = std::make_unique<Ffi>();
  tvm_ffi::Functions& f = result->functions_;
  std::string lacking;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(ffi, name);
    if (symbol == nullptr && lacking.empty()) lacking = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(f.get_version, "TVMFFIGetVersion");
  find(f.object_inc_ref, "TVMFFIObjectIncRef");
  find(f.object_dec_ref, "TVMFFIObjectDecRef");
  find(f.type_key_to_index, "TVMFFITypeKeyToIndex");
  find(f.get_type_info, "TVMFFIGetTypeInfo");
  find(f.function_get_global, "TVMFFIFunctionGetGlobal");
  find(f.function_call, "TVMFFIFunctionCall");
  find(f.error_move_from_raised, "TVMFFIErrorMoveFromRaised");
  find(f.string_from_byte_array, "TVMFFIStringFromByteArray");
  find(f.bytes_from_byte_array, "TVMFFIBytesFromByteArray");
  if (!lacking.empty()) return unusable(fmt::format("{} has no function {}", kFfiFile, lacking));
  tvm_ffi::Version version{};
  f.get_version(&version);
  if (version.major != 0 || version.minor != 1)
    return unusable(fmt::format("apache-tvm-ffi 0.1 is needed, but {} is version {}.{}.{}", (chosen / kFfiFile).string(), version.major,
                                version.minor, version.patch));
  if (::dlopen((chosen / kGrammarFile).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    return unusable(fmt::format("the library cannot be loaded: {}", ::dlerror()));
  loaded = std::move(result);
  return loaded.get();
}

std::string_view without_check(std::string_view message) {
  constexpr std::string_view kBegin = "Check failed: ", kEnd = " is false: ";
  const size_t begin = message.find(kBegin), end = message.find(kEnd, std::min(begin, message.size()));
  if (begin == std::string_view::npos) return message;
  if (end == std::string_view::npos || end + kEnd.size() == message.size()) return "the grammar library cannot deal with this grammar";
  return message.substr(end + kEnd.size());
}

Result<FfiMethod> Ffi::method(std::string_view type, std::string_view name) const {
  const std::string key = fmt::format("xgrammar.tvm_ffi_binding.{}", type);
  const tvm_ffi::ByteArray key_array = array_of(key);
  int32_t index = 0;
  const tvm_ffi::TypeInfo* info = functions_.type_key_to_index(&key_array, &index) == 0 ? functions_.get_type_info(index) : nullptr;
  for (int32_t i = 0; info != nullptr && i < info->method_count; ++i)
    if (view_of(info->methods[i].name) == name && info->methods[i].method.type_index == tvm_ffi::kFunction)
      return info->methods[i].method.pointer;
  return unusable(fmt::format("the library has no {}.{}", key, name));
}

Result<FfiMethod> Ffi::global(std::string_view name) const {
  const tvm_ffi::ByteArray array = array_of(name);
  void* function = nullptr;
  if (functions_.function_get_global(&array, &function) != 0 || function == nullptr)
    return unusable(fmt::format("the library has no function {}", name));
  return function;
}

Result<FfiValue> Ffi::call(FfiMethod method, std::initializer_list<const FfiValue*> arguments) const {
  tvm_ffi::Any list[8];
  BATON_CHECK(arguments.size() <= std::size(list));
  size_t count = 0;
  for (const FfiValue* argument : arguments) list[count++] = argument->any();
  return call(method, list, count);
}

Result<FfiValue> Ffi::call(FfiMethod method, std::span<const FfiValue> arguments) const {
  std::vector<tvm_ffi::Any> list;
  list.reserve(arguments.size());
  for (const FfiValue& argument : arguments) list.push_back(argument.any());
  return call(method, list.data(), list.size());
}

Result<FfiValue> Ffi::call(FfiMethod method, tvm_ffi::Any* arguments, size_t count) const {
  tvm_ffi::Any result;
  if (functions_.function_call(method, arguments, static_cast<int32_t>(count), &result) == 0)
    return FfiValue(result, functions_.object_dec_ref);
  void* raised = nullptr;
  functions_.error_move_from_raised(&raised);
  if (raised == nullptr) return Error{Error::Kind::kInvalid, "the grammar library failed without saying why"};
  const auto& error = content_of<tvm_ffi::ErrorContent>(raised);
  std::string message(view_of(error.message));
  functions_.object_dec_ref(raised);
  return Error{Error::Kind::kInvalid, std::string(without_check(message))};
}

FfiValue Ffi::string(std::string_view text) const {
  const tvm_ffi::ByteArray array = array_of(text);
  tvm_ffi::Any any;
  BATON_CHECK(functions_.string_from_byte_array(&array, &any) == 0);
  return {any, functions_.object_dec_ref};
}

FfiValue Ffi::bytes(std::string_view text) const {
  const tvm_ffi::ByteArray array = array_of(text);
  tvm_ffi::Any any;
  BATON_CHECK(functions_.bytes_from_byte_array(&array, &any) == 0);
  return {any, functions_.object_dec_ref};
}

}  // namespace baton::text
