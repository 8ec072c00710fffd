#include "model/synth.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "base/file.h"
#include "model/json_fields.h"
#include "model/json_text.h"
#include "model/random_weights.h"
#include "model/shard_writer.h"
#include "ops/weight.h"

namespace baton::model {
namespace {

constexpr int64_t kShardBytes = 5'000'000'000;
constexpr int64_t kPieceElements = int64_t{1} << 20;

// config.json of the same model in another format.
std::string config_text(boost::json::object config, WeightFormat format) {
  const char* dtype = format == WeightFormat::kF32 ? "float32" : "bfloat16";
  const auto adapt = [&](boost::json::object& object) {
    for (const char* key : {"dtype", "torch_dtype"})
      if (object.contains(key)) object[key] = dtype;
    object.erase("quantization_config");
  };
  adapt(config);
  if (boost::json::value* text = config.if_contains("text_config"); text != nullptr && text->is_object()) adapt(text->get_object());
  if (format == WeightFormat::kFp8)
    config["quantization_config"] = boost::json::object{{"quant_method", "fp8"},
                                                        {"fmt", "e4m3"},
                                                        {"activation_scheme", "dynamic"},
                                                        {"weight_block_size", {ops::kScaleBlock, ops::kScaleBlock}}};
  return pretty_json(std::move(config));
}

class Writer {
 public:
  Writer(const std::vector<StoredTensor>& tensors, const std::vector<ShardPlan>& plan, const std::vector<SizedFile>& files,
         const SynthOptions& options)
      : tensors_(tensors), options_(options) {
    for (size_t s = 0; s < plan.size(); ++s)
      for (size_t i = 0; i < plan[s].tensors.size(); ++i) places_.push_back({&files[s], plan[s].offset[i]});
    for (const StoredTensor& t : tensors) total_ += t.bytes();
  }

  Status run() {
    const auto work = [this] {
      // A scale is written together with its matrix, which is the tensor before it.
      try {
        for (size_t i = next_++; i < tensors_.size() && !stopped(); i = next_++)
          if (!tensors_[i].name.ends_with(kScaleSuffix)) write(i);
      } catch (const std::bad_alloc&) {
        fail(Error{Error::Kind::kExhausted, "out of memory while writing weights; try fewer --threads"});
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int t = 1; t < options_.threads; ++t) threads.emplace_back(work);
      work();
    }
    if (options_.stop != nullptr && options_.stop->load()) return Error{Error::Kind::kIo, "interrupted; nothing was kept"};
    return failure_;
  }

 private:
  struct Place {
    const SizedFile* file;
    int64_t offset;
  };

  bool stopped() const { return failed_.load() || (options_.stop != nullptr && options_.stop->load()); }

  void fail(Status status) {
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) failure_ = std::move(status);
  }

  void put(size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
    const Status status = places_[tensor].file->write_at(places_[tensor].offset + offset, bytes);
    if (!status.ok()) fail(status);
    const std::lock_guard lock(mutex_);
    done_ += static_cast<int64_t>(bytes.size());
    if (options_.progress) options_.progress(done_, total_);
  }

  void write(size_t i) {
    const StoredTensor& t = tensors_[i];
    const RandomTensor random(t.name, t.shape, options_.seed);
    if (t.dtype == DType::kF8E4M3) return write_quantised(i, random);
    std::vector<float> values;
    std::vector<bf16> narrow;
    for (int64_t first = 0; first < t.elements() && !stopped(); first += kPieceElements) {
      values.resize(static_cast<size_t>(std::min(kPieceElements, t.elements() - first)));
      random.fill(first, values);
      if (t.dtype == DType::kF32) {
        put(i, first * 4, std::as_bytes(std::span(values)));
      } else {
        narrow.resize(values.size());
        std::transform(values.begin(), values.end(), narrow.begin(), to_bf16);
        put(i, first * 2, std::as_bytes(std::span(narrow)));
      }
    }
  }

  // One row of blocks at a time.
  void write_quantised(size_t i, const RandomTensor& random) {
    constexpr int64_t kBlock = ops::kScaleBlock;
    const StoredTensor& t = tensors_[i];
    const int64_t n = t.shape[0];
    const int64_t k = t.shape[1];
    std::vector<e4m3> codes(static_cast<size_t>(std::min(kBlock, n) * k));
    std::vector<float> scales(static_cast<size_t>((k + kBlock - 1) / kBlock));
    for (int64_t row = 0; row < n && !stopped(); row += kBlock) {
      const int64_t rows = std::min(kBlock, n - row);
      random.fill_quantised(row, rows, k, codes, scales);
      put(i, row * k, std::as_bytes(std::span(codes).first(static_cast<size_t>(rows * k))));
      put(i + 1, row / kBlock * static_cast<int64_t>(scales.size()) * 4, std::as_bytes(std::span(scales)));
    }
  }

  const std::vector<StoredTensor>& tensors_;
  const SynthOptions& options_;
  std::vector<Place> places_;  // of each tensor
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards what follows
  Status failure_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

Status write_text(const std::filesystem::path& path, const std::string& text) {
  BATON_ASSIGN(PendingFile file, PendingFile::create(path));
  BATON_TRY(file.write(text));
  return file.commit();
}

Status write_files(const std::filesystem::path& dir, const std::vector<StoredTensor>& tensors, const std::vector<ShardPlan>& plan,
                   const SynthOptions& options) {
  // All space is claimed before the first weight is drawn: a disk that is too small is known at once.
  std::vector<SizedFile> files;
  for (const ShardPlan& shard : plan) {
    BATON_ASSIGN(SizedFile file, SizedFile::create(dir / shard.file, shard.bytes));
    BATON_TRY(file.write_at(0, std::as_bytes(std::span(shard.header))));
    files.push_back(std::move(file));
  }
  BATON_TRY(Writer(tensors, plan, files, options).run());
  for (SizedFile& file : files) BATON_TRY(file.close());
  if (plan.size() > 1) BATON_TRY(write_text(dir / "model.safetensors.index.json", index_json(tensors, plan)));
  return {};
}

}  // namespace

Result<SynthSummary> write_synthetic_checkpoint(const std::string& config_json, const std::string& config_where,
                                                const std::filesystem::path& out, const SynthOptions& options) {
  BATON_ASSIGN(const Config config, parse_config(config_json, config_where));
  BATON_ASSIGN(boost::json::object config_object, parse_json_object(config_json, config_where));
  const std::vector<StoredTensor> tensors = stored_tensors(config, options.format);

  SynthSummary summary;
  summary.tensors = static_cast<int64_t>(tensors.size());
  for (const StoredTensor& t : tensors) {
    summary.bytes += t.bytes();
    if (!t.name.ends_with(kScaleSuffix)) summary.parameters += t.elements();
  }
  summary.shards = options.shards > 0 ? options.shards : (summary.bytes + kShardBytes - 1) / kShardBytes;
  if (summary.shards > summary.tensors)
    return Error{Error::Kind::kInvalid,
                 fmt::format("{} shards are asked for, the model has only {} tensors", summary.shards, summary.tensors)};

  BATON_ASSIGN(PendingDirectory folder, PendingDirectory::create(out));
  BATON_TRY(write_text(folder.path() / "config.json", config_text(std::move(config_object), options.format)));
  BATON_TRY(write_files(folder.path(), tensors, plan_shards(tensors, summary.shards), options));
  BATON_TRY(folder.commit());
  return summary;
}

}  // namespace baton::model
