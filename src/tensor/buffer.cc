#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace baton {

Result<Buffer> allocate_host(int64_t bytes) {
  const int64_t size = align_up(bytes > 0 ? bytes : 1, 4096);
  void* p = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    return Error{Error::Kind::kExhausted, fmt::format("cannot allocate {} bytes of memory: {}", bytes, std::strerror(errno))};
  madvise(p, static_cast<size_t>(size), MADV_HUGEPAGE);
  return Buffer(static_cast<std::byte*>(p), size, [](std::byte* q, int64_t n) { munmap(q, static_cast<size_t>(n)); });
}

}  // namespace baton
