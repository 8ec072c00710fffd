// A CUDA device as a backend, where this build has CUDA and the machine has a device.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "ops/op_table.h"
#include "ops/recording.h"
#include "ops/timeline.h"

namespace baton::cuda {

struct DeviceOptions {
  // Memory that the host reads as well, and ops that wait for their end: for tests, at the speed of the bus.
  bool host_visible = false;
  // Only the plain bodies (plain/README.md): to tell an error of a tuned kernel from others.
  bool plain = false;
  // Also what has not been checked on a device yet: kernels (unproven.cc), loading through pinned memory. Kernels are off with `plain`.
  bool unproven = false;
};

struct OpenedDevice {
  std::unique_ptr<ops::Backend> backend;
  std::string name;
  int64_t free_bytes = 0;  // of device memory, before anything is allocated
};

// The first device. Its backend is for one thread at a time, but for store_weight() and copies while weights are loaded.
Result<OpenedDevice> open_device(const DeviceOptions& options);

// Points in the order of work of a backend that open_device() made, which outlives them.
std::unique_ptr<ops::Timeline> make_timeline(ops::Backend& backend, size_t points);

// What `run` gives such a backend, which does not run it yet: ops and copies on the device; neither allocations nor copies from and to the
// host, nor waits. The memory that the ops use outlives the recording. Fails where the device cannot record, saying why.
Result<std::unique_ptr<ops::Recording>> record(ops::Backend& backend, const std::function<void()>& run);

}  // namespace baton::cuda
