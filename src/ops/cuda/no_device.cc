// In builds without CUDA.
#include "ops/cuda/open.h"

namespace baton::cuda {

Result<OpenedDevice> open_device(const DeviceOptions&) {
  return Error{Error::Kind::kUnsupported, "this build has no CUDA backend; build with `make cuda` where a CUDA toolkit is, or use the CPU"};
}

std::unique_ptr<ops::Timeline> make_timeline(ops::Backend&, size_t) { return nullptr; }  // nobody has such a backend

Result<std::unique_ptr<ops::Recording>> record(ops::Backend&, const std::function<void()>&) {
  return Error{Error::Kind::kUnsupported, "this build has no CUDA backend, so nothing can be recorded"};
}

}  // namespace baton::cuda
