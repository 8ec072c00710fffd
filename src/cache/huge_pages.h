// Memory for arrays that are read far apart: on huge pages where the system grants them, since on small ones every look would miss the
// processor's address cache too.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace baton::cache {

// At least `bytes`, not initialised, for std::free(); nullptr if there is none.
inline void* allocate_on_huge_pages(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, rounded > 0 ? rounded : kHugePage);
  if (p != nullptr) madvise(p, rounded, MADV_HUGEPAGE);
  return p;
}

// For standard containers.
template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t count) {
    void* p = allocate_on_huge_pages(count * sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t) { std::free(p); }
  bool operator==(const HugePages&) const { return true; }
};

}  // namespace baton::cache
