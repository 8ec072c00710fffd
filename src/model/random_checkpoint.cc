#include "model/random_checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "model/random_weights.h"
#include "ops/weight.h"
#include "tensor/buffer.h"

namespace baton::model {
namespace {

// Values that are drawn for one part; what is larger repeats them.
constexpr int64_t kMostDrawn = int64_t{1} << 24;

// The tensor's name without the numbers of its layer and expert, its shape and its type: both kinds of attention have an o_proj.
std::string part_of(const StoredTensor& t) {
  std::string out;
  std::copy_if(t.name.begin(), t.name.end(), std::back_inserter(out), [](char c) { return c < '0' || c > '9'; });
  for (const int64_t n : t.shape) out += fmt::format(" {}", n);
  return out + fmt::format(" {}", static_cast<int>(t.dtype));
}

struct Part {
  const StoredTensor* tensor = nullptr;
  int64_t offset = 0;
  int64_t scale_offset = 0;  // FP8 only
};

// Repeats the first `drawn` bytes until `bytes` are there.
void repeat(std::byte* data, int64_t drawn, int64_t bytes) {
  for (int64_t done = drawn; done < bytes; done += drawn)
    std::memcpy(data + done, data, static_cast<size_t>(std::min(drawn, bytes - done)));
}

void fill_part(const Part& part, uint64_t seed, std::byte* memory) {
  const StoredTensor& t = *part.tensor;
  const RandomTensor random(t.name, t.shape, seed);
  if (t.dtype == DType::kF8E4M3) {
    constexpr int64_t kBlock = ops::kScaleBlock;
    const int64_t n = t.shape[0];
    const int64_t k = t.shape[1];
    const int64_t scales = (k + kBlock - 1) / kBlock;
    const int64_t drawn = std::min(n, std::max<int64_t>(1, kMostDrawn / (k * kBlock)) * kBlock);
    auto* const codes = reinterpret_cast<e4m3*>(memory + part.offset);
    auto* const scale = reinterpret_cast<float*>(memory + part.scale_offset);
    for (int64_t row = 0; row < drawn; row += kBlock) {
      const int64_t rows = std::min(kBlock, drawn - row);
      random.fill_quantised(row, rows, k, {codes + row * k, static_cast<size_t>(rows * k)},
                            {scale + row / kBlock * scales, static_cast<size_t>(scales)});
    }
    repeat(memory + part.offset, drawn * k, n * k);
    repeat(memory + part.scale_offset, (drawn + kBlock - 1) / kBlock * scales * 4, (n + kBlock - 1) / kBlock * scales * 4);
    return;
  }
  const int64_t drawn = std::min(t.elements(), kMostDrawn);
  std::vector<float> values(static_cast<size_t>(drawn));
  random.fill(0, values);
  if (t.dtype == DType::kF32)
    std::memcpy(memory + part.offset, values.data(), values.size() * 4);
  else
    std::transform(values.begin(), values.end(), reinterpret_cast<bf16*>(memory + part.offset), to_bf16);
  repeat(memory + part.offset, drawn * dtype_bytes(t.dtype), t.bytes());
}

// A file without a name: its pages survive that a loader says it has done with them.
Result<MappedFile> make_memory(int64_t bytes, const std::function<void(std::byte*)>& fill) {
  const auto failed = [bytes](const char* what) {
    return Error{Error::Kind::kExhausted, fmt::format("{} for {} bytes of random weights: {}", what, bytes, std::strerror(errno))};
  };
  const int fd = memfd_create("baton random weights", MFD_CLOEXEC);
  if (fd < 0) return failed("no memory");
  const auto mapped = [&]() -> Result<MappedFile> {
    if (ftruncate(fd, bytes) != 0) return failed("no room");
    void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return failed("no address range");
    fill(static_cast<std::byte*>(data));
    munmap(data, static_cast<size_t>(bytes));
    return MappedFile::open(fmt::format("/proc/self/fd/{}", fd));
  };
  Result<MappedFile> file = mapped();
  close(fd);
  return file;
}

}  // namespace

Result<Checkpoint> random_checkpoint(const std::string& config_json, const std::string& where, WeightFormat format, uint64_t seed,
                                     int threads) {
  BATON_ASSIGN(Config config, parse_config(config_json, where));
  const std::vector<StoredTensor> tensors = stored_tensors(config, format);
  std::map<std::string, Part> parts;  // a scale follows its matrix
  std::vector<std::pair<const StoredTensor*, const Part*>> places;
  int64_t bytes = 0;
  for (const StoredTensor& t : tensors) {
    if (t.name.ends_with(kScaleSuffix)) {
      places.emplace_back(&t, places.back().second);
      continue;
    }
    const auto [it, fresh] = parts.try_emplace(part_of(t), Part{&t, bytes});
    places.emplace_back(&t, &it->second);
    if (!fresh) continue;
    bytes = align_up(bytes + t.bytes(), kBufferAlignment);
    if (t.dtype != DType::kF8E4M3) continue;
    it->second.scale_offset = bytes;
    const int64_t blocks = ops::kScaleBlock;
    bytes = align_up(bytes + (t.shape[0] + blocks - 1) / blocks * ((t.shape[1] + blocks - 1) / blocks) * 4, kBufferAlignment);
  }

  std::vector<const Part*> work;
  for (const auto& [name, part] : parts) work.push_back(&part);
  BATON_ASSIGN(MappedFile memory, make_memory(bytes, [&](std::byte* data) {
                 std::atomic<size_t> next{0};
                 const auto run = [&] {
                   for (size_t i = next++; i < work.size(); i = next++) fill_part(*work[i], seed, data);
                 };
                 std::vector<std::jthread> others;
                 for (int t = 1; t < threads; ++t) others.emplace_back(run);
                 run();
               }));

  std::vector<TensorEntry> entries;
  for (const auto& [t, part] : places) {
    const int64_t offset = t->name.ends_with(kScaleSuffix) ? part->scale_offset : part->offset;
    entries.push_back({t->name, t->dtype, t->shape, memory.bytes().data() + offset, t->bytes(), 0});
  }
  return Checkpoint(std::move(config), TensorSet::of_memory(where, std::move(entries), std::move(memory)));
}

}  // namespace baton::model
