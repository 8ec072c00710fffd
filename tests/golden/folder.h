// A golden folder: golden.safetensors and golden.json beside a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "golden/measure.h"
#include "model/safetensors.h"

namespace baton::golden {

class Folder {
 public:
  static Result<Folder> open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  bool has(const std::string& key) const { return tensors_.contains(key); }
  // Throws std::runtime_error if the key is absent or of another type: a golden folder that lacks what it promises is unusable.
  std::vector<float> floats(const std::string& key) const;
  std::vector<int32_t> ints(const std::string& key) const;
  std::vector<uint8_t> flags(const std::string& key) const;
  const std::vector<int64_t>& shape(const std::string& key) const;

  int prompt_count() const { return prompt_count_; }
  bool clear_of_ties(int prompt) const { return clear_of_ties_[static_cast<size_t>(prompt)]; }
  // mode: "fp32", "bf16", "fp8_act"; kind -> three measures. Empty if the folder has no such mode.
  const std::map<std::string, Measures>& tolerances(const std::string& mode) const;

 private:
  // Bytes of a tensor, which must have this type.
  std::span<const std::byte> find(const std::string& key, DType dtype) const;

  std::filesystem::path dir_;
  MappedFile file_;
  std::map<std::string, model::SafetensorsTensor> tensors_;
  std::map<std::string, std::map<std::string, Measures>> tolerances_;
  std::vector<bool> clear_of_ties_;
  int prompt_count_ = 0;
};

}  // namespace baton::golden
