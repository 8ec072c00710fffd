#include "model/tensor_set.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "model/shard_set.h"
#include "model/stored_tensors.h"
#include "ops/weight.h"

namespace baton::model {
namespace {

int64_t blocks(int64_t n) { return (n + ops::kScaleBlock - 1) / ops::kScaleBlock; }

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Compares what the files hold with what the architecture needs.
class Validator {
 public:
  Validator(const std::vector<TensorSpec>& specs, const TensorNaming& naming, Problems& problems)
      : specs_(specs), naming_(naming), problems_(problems) {
    for (const TensorSpec& spec : specs_) by_name_.emplace(spec.name, &spec);
  }

  // Takes over the tensors of a shard; counts those that are skipped.
  void take(const Shard& shard, int32_t number, int64_t& skipped) {
    for (const SafetensorsTensor& t : shard.tensors) {
      if (!naming_.skipped_prefix.empty() && t.name.starts_with(naming_.skipped_prefix)) {
        ++skipped;
        continue;
      }
      std::string name = naming_.expected_name == nullptr ? t.name : naming_.expected_name(t.name);
      if (!expected(name)) {
        problems_.add("unexpected tensors", fmt::format("{} ({} {})", t.name, t.dtype, shape_text(t.shape)));
      } else if (!t.type) {
        problems_.add("tensors of a wrong type", fmt::format("{} is {}, {} is expected", t.name, t.dtype, accepted_types(name)));
        mistyped_.insert(std::move(name));
      } else {
        TensorEntry entry{std::move(name), *t.type, t.shape, shard.file.bytes().data() + t.begin, t.end - t.begin, number};
        const auto [it, fresh] = found_.emplace(entry.name, std::move(entry));
        if (!fresh) problems_.add("tensors that appear twice", it->first);
      }
    }
  }

  void check() {
    for (const TensorSpec& spec : specs_) {
      const auto it = found_.find(spec.name);
      if (it != found_.end())
        check_tensor(spec, it->second);
      else if (!mistyped_.contains(spec.name))
        problems_.add("missing tensors", fmt::format("{} {}", spec.name, shape_text(spec.shape)));
    }
    check_scale_values();
  }

  std::vector<TensorEntry> release() {
    std::vector<TensorEntry> out;
    out.reserve(found_.size());
    for (auto& [name, entry] : found_) out.push_back(std::move(entry));
    std::sort(out.begin(), out.end(), [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
    return out;
  }

 private:
  bool expected(std::string_view name) const {
    if (by_name_.contains(name)) return true;
    if (!name.ends_with(kScaleSuffix)) return false;
    name.remove_suffix(kScaleSuffix.size());
    const auto it = by_name_.find(name);
    return it != by_name_.end() && it->second->storage == StorageClass::kQuantisable;
  }

  // `name` is expected().
  std::string_view accepted_types(std::string_view name) const {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return "F32";  // a scale
    return it->second->storage == StorageClass::kQuantisable ? "BF16, F32 or F8_E4M3" : "BF16 or F32";
  }

  void check_tensor(const TensorSpec& spec, const TensorEntry& t) {
    if (t.shape != spec.shape)
      problems_.add("tensors of a wrong shape",
                    fmt::format("{} is {}, {} is expected", t.name, shape_text(t.shape), shape_text(spec.shape)));
    const auto scale = found_.find(spec.name + std::string(kScaleSuffix));
    const bool has_scale = scale != found_.end() || mistyped_.contains(spec.name + std::string(kScaleSuffix));
    if (t.dtype == DType::kF8E4M3 && spec.storage == StorageClass::kQuantisable) {
      if (!has_scale) problems_.add("FP8 matrices without scale", fmt::format("{}: {}{} is missing", t.name, t.name, kScaleSuffix));
    } else if (t.dtype != DType::kBF16 && t.dtype != DType::kF32) {
      problems_.add("tensors of a wrong type",
                    fmt::format("{} is {}, {} is expected", t.name, safetensors_dtype(t.dtype), accepted_types(t.name)));
    } else if (has_scale) {
      problems_.add("scales without FP8 matrix", fmt::format("{}{}: {} is {}", t.name, kScaleSuffix, t.name, safetensors_dtype(t.dtype)));
    }
    if (scale != found_.end()) check_scale(spec, scale->second);
  }

  void check_scale(const TensorSpec& spec, const TensorEntry& scale) {
    const std::vector<int64_t> shape = {blocks(spec.shape[0]), blocks(spec.shape[1])};
    if (scale.dtype != DType::kF32)
      problems_.add("tensors of a wrong type", fmt::format("{} is {}, F32 is expected", scale.name, safetensors_dtype(scale.dtype)));
    else if (scale.shape != shape)
      problems_.add("tensors of a wrong shape",
                    fmt::format("{} is {}, {} is expected", scale.name, shape_text(scale.shape), shape_text(shape)));
    else
      scales_.push_back(&scale);
  }

  // The only tensor data read here: a bad scale spoils 16384 weights at once and would only show as nonsense output.
  void check_scale_values() {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (const TensorEntry* scale : scales_) {  // asks for all of them first: scales lie far apart, and reads then overlap
      const auto begin = reinterpret_cast<uintptr_t>(scale->data) / page * page;
      const auto end = reinterpret_cast<uintptr_t>(scale->data) + static_cast<uintptr_t>(scale->bytes);
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
    }
    for (const TensorEntry* scale : scales_) {
      for (int64_t i = 0; i < scale->bytes / 4; ++i) {
        float x = 0;
        std::memcpy(&x, scale->data + i * 4, 4);
        if (x > 0 && x <= std::numeric_limits<float>::max()) continue;
        problems_.add("bad scales", fmt::format("{}[{}, {}] is {}: a positive finite number is expected", scale->name, i / scale->shape[1],
                                                i % scale->shape[1], x));
        break;
      }
    }
  }

  const std::vector<TensorSpec>& specs_;
  const TensorNaming& naming_;
  Problems& problems_;
  std::unordered_map<std::string_view, const TensorSpec*> by_name_;
  std::unordered_map<std::string, TensorEntry> found_;
  std::unordered_set<std::string> mistyped_;
  std::vector<const TensorEntry*> scales_;
};

}  // namespace

Result<TensorSet> TensorSet::open(const std::filesystem::path& dir, const std::vector<TensorSpec>& specs, const TensorNaming& naming) {
  TensorSet set;
  set.dir_ = dir;
  Problems problems;
  const std::string heading = fmt::format("{} is not a sound checkpoint", dir.string());
  std::vector<Shard> shards = open_shards(dir, problems);
  // With a shard unread, most of what follows would be reported as missing.
  if (!problems.empty()) return problems.error(heading);

  Validator validator(specs, naming, problems);
  for (size_t i = 0; i < shards.size(); ++i) validator.take(shards[i], static_cast<int32_t>(i), set.skipped_);
  validator.check();
  if (!problems.empty()) return problems.error(heading);

  set.tensors_ = validator.release();
  for (size_t i = 0; i < set.tensors_.size(); ++i) set.index_.emplace(set.tensors_[i].name, i);
  for (Shard& shard : shards) set.files_.push_back(std::move(shard.file));
  return set;
}

TensorSet TensorSet::of_memory(std::string name, std::vector<TensorEntry> tensors, MappedFile memory) {
  TensorSet set;
  set.dir_ = std::move(name);
  set.tensors_ = std::move(tensors);
  std::sort(set.tensors_.begin(), set.tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  for (size_t i = 0; i < set.tensors_.size(); ++i) set.index_.emplace(set.tensors_[i].name, i);
  set.files_.push_back(std::move(memory));
  return set;
}

const TensorEntry* TensorSet::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

const TensorEntry* TensorSet::scale_of(std::string_view name) const { return find(std::string(name) + std::string(kScaleSuffix)); }

int64_t TensorSet::file_bytes() const {
  int64_t bytes = 0;
  for (const MappedFile& file : files_) bytes += static_cast<int64_t>(file.bytes().size());
  return bytes;
}

void TensorSet::drop_pages(const std::byte* data, int64_t bytes) {
  // Only whole pages of the range: its neighbours share the outer ones.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace baton::model
