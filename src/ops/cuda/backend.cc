// The CUDA backend: one stream, device memory, weights row-major as they come.
#include <fmt/format.h>

#include <vector>

#include "ops/cuda/moe/op.h"
#include "ops/cuda/open.h"
#include "ops/cuda/plain/register.h"
#include "ops/cuda/register.h"
#include "ops/cuda/staging.h"
#include "ops/cuda/stream.h"

namespace baton::cuda {
namespace {

// What fails here is the device or a defect: launches are asynchronous, and what they left behind cannot be told from what is right.
void check(cudaError_t e, const char* what) { BATON_CHECK_MSG(e == cudaSuccess, "CUDA {}: {}", what, cudaGetErrorString(e)); }

size_t size_of(int64_t bytes) { return static_cast<size_t>(bytes); }

void free_device(std::byte* p, int64_t) { cudaFree(p); }
void free_host(std::byte* p, int64_t) { cudaFreeHost(p); }

class CudaBackend final : public ops::Backend {
 public:
  CudaBackend(const DeviceOptions& options, cudaStream_t stream, int multiprocessors) : host_visible_(options.host_visible) {
    stream_ = {stream, multiprocessors, options.host_visible};
    plain::register_all(table_);
    if (options.plain) return;
    register_tuned(table_);
    if (!options.unproven) return;
    register_unproven(table_);
    unproven_ = true;
  }
  ~CudaBackend() override { cudaStreamDestroy(stream_.handle); }

  const ops::OpTable& ops() const override { return table_; }
  ops::Executor& executor() override { return executor_of(stream_); }

  Result<Buffer> allocate(int64_t bytes) override {
    void* p = nullptr;
    if (bytes <= 0) return Buffer();
    const cudaError_t e = host_visible_ ? cudaHostAlloc(&p, size_of(bytes), cudaHostAllocDefault) : cudaMalloc(&p, size_of(bytes));
    if (e != cudaSuccess) {
      cudaGetLastError();  // an allocation that fails leaves its error behind
      return Error{Error::Kind::kExhausted, fmt::format("the CUDA device refuses {} bytes: {}", bytes, cudaGetErrorString(e))};
    }
    Buffer buffer(static_cast<std::byte*>(p), bytes, host_visible_ ? free_host : free_device);
    clear_on_device(p, bytes);
    if (host_visible_) synchronize();
    return buffer;
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override { copy(device, host, bytes, cudaMemcpyHostToDevice); }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToDevice); }
  void clear_on_device(void* device, int64_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(device, 0, size_of(bytes), stream_.handle), "clear");
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_.handle), "synchronisation"); }

  int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const override { return n * k * dtype_bytes(dtype); }
  void store_weight(void* device, ConstMatrixView host) override {
    const size_t row = size_of(host.cols * dtype_bytes(host.dtype));
    const size_t pitch = size_of(host.stride * dtype_bytes(host.dtype));
    if (host.rows == 0 || row == 0) return;
    if (unproven_) {
      synchronize();  // the memory was just allocated, and is being cleared
      return check(staging_.copy(device, host), "copy of a weight");
    }
    check(cudaMemcpy2DAsync(device, row, host.data, pitch, row, size_of(host.rows), cudaMemcpyHostToDevice, stream_.handle),
          "copy of a weight");
    check(cudaStreamSynchronize(stream_.handle), "copy of a weight");  // the caller drops the host's pages
  }
  bool prepare_experts(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                       ops::ActivationQuant quant) override {
    if (!unproven_ || !moe::preparable(gate, up, down, quant)) return false;
    auto scratch = allocate(gate[0].n * gate[0].k);
    if (!scratch) return false;  // the memory is full: slower, not wrong
    check(moe::prepare(gate, up, down, scratch->data(), stream_.handle), "packing of experts");
    synchronize();
    return true;
  }

 private:
  // From pageable memory: returns when the source may be changed.
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes <= 0) return;
    check(cudaMemcpyAsync(to, from, size_of(bytes), host_visible_ ? cudaMemcpyDefault : kind, stream_.handle), "copy");
    if (host_visible_ || kind == cudaMemcpyHostToDevice) synchronize();
  }

  bool host_visible_;
  bool unproven_ = false;  // experts are prepared, weights come through pinned memory
  Stream stream_;
  Staging staging_;
  ops::OpTable table_;
};

class EventTimeline final : public ops::Timeline {
 public:
  EventTimeline(cudaStream_t stream, size_t points) : stream_(stream), events_(points) {
    for (cudaEvent_t& e : events_) check(cudaEventCreate(&e), "event");
  }
  ~EventTimeline() override {
    for (cudaEvent_t e : events_) cudaEventDestroy(e);
  }
  void mark(size_t i) override { check(cudaEventRecord(events_[i], stream_), "event"); }
  std::vector<double> seconds(size_t count) override {
    if (count == 0) return {};
    check(cudaEventSynchronize(events_[count - 1]), "waiting for an event");
    std::vector<double> out;
    for (size_t i = 1; i < count; ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]), "time between events");
      out.push_back(static_cast<double>(ms) * 1e-3);
    }
    return out;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
};

class Graph final : public ops::Recording {
 public:
  Graph(cudaStream_t stream, cudaGraphExec_t graph) : stream_(stream), graph_(graph) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  void replay() override { check(cudaGraphLaunch(graph_, stream_), "launch of a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_;
};

}  // namespace

Result<std::unique_ptr<ops::Recording>> record(ops::Backend& backend, const std::function<void()>& run) {
  const Stream& stream = stream_of(backend.executor());
  if (stream.blocking) return Error{Error::Kind::kUnsupported, "ops that wait for their end cannot be recorded"};
  const auto failed = [](const char* what, cudaError_t e) {
    cudaGetLastError();
    return Error{Error::Kind::kUnsupported, fmt::format("CUDA {}: {}", what, cudaGetErrorString(e))};
  };
  if (const cudaError_t e = cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal); e != cudaSuccess)
    return failed("begin of a recording", e);
  run();
  cudaGraph_t graph = nullptr;
  if (const cudaError_t e = cudaStreamEndCapture(stream.handle, &graph); e != cudaSuccess) return failed("end of a recording", e);
  cudaGraphExec_t ready = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  if (e != cudaSuccess) return failed("making of a graph", e);
  return std::unique_ptr<ops::Recording>(std::make_unique<Graph>(stream.handle, ready));
}

std::unique_ptr<ops::Timeline> make_timeline(ops::Backend& backend, size_t points) {
  return std::make_unique<EventTimeline>(stream_of(backend.executor()).handle, points);
}

Result<OpenedDevice> open_device(const DeviceOptions& options) {
  const auto failed = [](const char* what, cudaError_t e) {
    return Error{Error::Kind::kUnsupported, fmt::format("no CUDA device can be used ({}: {}); use the CPU", what, cudaGetErrorString(e))};
  };
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) return failed("counting devices", e);
  cudaDeviceProp properties{};
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, 0); e != cudaSuccess) return failed("asking for its properties", e);
  if (properties.major != 9 || properties.minor != 0)
    return Error{Error::Kind::kUnsupported, fmt::format("{} has compute capability {}.{}; the kernels are for 9.0 (H100, H200)",
                                                        properties.name, properties.major, properties.minor)};
  OpenedDevice opened;
  opened.name = properties.name;
  size_t free = 0, total = 0;
  if (const cudaError_t e = cudaMemGetInfo(&free, &total); e != cudaSuccess) return failed("asking for its memory", e);
  opened.free_bytes = static_cast<int64_t>(free);
  cudaStream_t stream = nullptr;
  if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); e != cudaSuccess)
    return failed("making a stream", e);
  opened.backend = std::make_unique<CudaBackend>(options, stream, properties.multiProcessorCount);
  return opened;
}

}  // namespace baton::cuda
