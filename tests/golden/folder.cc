#include "golden/folder.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>

#include <stdexcept>

namespace baton::golden {

namespace {
// Python writes bare Infinity and NaN, which JSON does not know. They occur among the noise figures only, so null does for them.
void strip_non_numbers(std::string& text) {
  for (const std::string_view word : {std::string_view("-Infinity"), std::string_view("Infinity"), std::string_view("NaN")})
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) text.replace(at, word.size(), "null");
}
}  // namespace

Result<Folder> Folder::open(const std::filesystem::path& dir) {
  Folder f;
  f.dir_ = dir;
  BATON_ASSIGN(f.file_, MappedFile::open(dir / "golden.safetensors"));
  BATON_ASSIGN(auto header, model::parse_safetensors(f.file_.bytes(), (dir / "golden.safetensors").string()));
  for (model::SafetensorsTensor& t : header) f.tensors_[t.name] = std::move(t);
  BATON_ASSIGN(std::string text, read_file(dir / "golden.json", 64 << 20));
  strip_non_numbers(text);
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse(text, error);
  if (error || !json.is_object()) return Error{Error::Kind::kInvalid, fmt::format("{}/golden.json is not a JSON object", dir.string())};
  const boost::json::object& root = json.as_object();
  for (const boost::json::value& prompt : root.at("prompts").as_array()) {
    ++f.prompt_count_;
    f.clear_of_ties_.push_back(prompt.as_object().at("clear_of_ties").as_bool());
  }
  for (const auto& [mode, kinds] : root.at("tolerance").as_object())
    for (const auto& [kind, values] : kinds.as_object())
      for (size_t i = 0; i < 3; ++i) f.tolerances_[std::string(mode)][std::string(kind)][i] = values.as_array().at(i).to_number<double>();
  return f;
}

std::span<const std::byte> Folder::find(const std::string& key, DType dtype) const {
  const auto it = tensors_.find(key);
  if (it == tensors_.end()) throw std::runtime_error(fmt::format("golden.safetensors has no tensor {}", key));
  if (it->second.type != dtype)
    throw std::runtime_error(fmt::format("golden.safetensors: {} is {}, wanted {}", key, it->second.dtype, dtype_name(dtype)));
  return file_.bytes().subspan(static_cast<size_t>(it->second.begin), static_cast<size_t>(it->second.end - it->second.begin));
}

namespace {
template <class T>
std::vector<T> copy(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
}  // namespace

std::vector<float> Folder::floats(const std::string& key) const { return copy<float>(find(key, DType::kF32)); }
std::vector<int32_t> Folder::ints(const std::string& key) const { return copy<int32_t>(find(key, DType::kI32)); }
std::vector<uint8_t> Folder::flags(const std::string& key) const { return copy<uint8_t>(find(key, DType::kU8)); }
const std::vector<int64_t>& Folder::shape(const std::string& key) const {
  const auto it = tensors_.find(key);
  if (it == tensors_.end()) throw std::runtime_error(fmt::format("golden.safetensors has no tensor {}", key));
  return it->second.shape;
}

const std::map<std::string, Measures>& Folder::tolerances(const std::string& mode) const {
  static const std::map<std::string, Measures> kNone;
  const auto it = tolerances_.find(mode);
  return it == tolerances_.end() ? kNone : it->second;
}

}  // namespace baton::golden
