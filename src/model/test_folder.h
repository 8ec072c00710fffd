// For tests: a temporary folder, and checkpoints whose tensors can be altered, removed or added before they are written.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/file.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace baton::model {

class TestFolder {
 public:
  TestFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() / fmt::format("baton-{}-{}-{}", test->test_suite_name(), test->name(), ::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name, std::ios::binary) << text; }
  std::string read(const std::string& name) const { return *read_file(path_ / name, int64_t{1} << 30); }

 private:
  std::filesystem::path path_;
};

// A safetensors file from a header and data, neither of them checked.
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  return out + header + data;
}

struct LooseTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using LooseTensors = std::map<std::string, LooseTensor>;

inline std::string to_safetensors(const LooseTensors& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, t] : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "", name, t.dtype,
                          fmt::join(t.shape, ","), data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  return raw_safetensors(header + "}", data);
}

// All tensors of a folder, vision included.
inline LooseTensors read_tensors(const std::filesystem::path& dir) {
  LooseTensors out;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const std::string file = *read_file(entry.path(), int64_t{1} << 30);
    const auto tensors = parse_safetensors(std::as_bytes(std::span(file)), name);
    for (const SafetensorsTensor& t : *tensors)
      out[t.name] = {t.dtype, t.shape, file.substr(static_cast<size_t>(t.begin), static_cast<size_t>(t.end - t.begin))};
  }
  return out;
}

}  // namespace baton::model
