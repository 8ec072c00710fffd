// A list of ids by last use, for eviction: constant time for everything, no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::cache {

class UseList {
 public:
  static constexpr int32_t kNone = -1;

  explicit UseList(int32_t capacity) : links_(static_cast<size_t>(capacity)) {}

  int32_t oldest() const { return oldest_; }
  int32_t newer(int32_t id) const { return at(id).newer; }  // of a listed id; kNone behind the newest
  bool contains(int32_t id) const { return at(id).listed; }

  // An id that is listed already moves.
  void put_newest(int32_t id) {
    remove(id);
    at(id) = {.newer = kNone, .older = newest_, .listed = true};
    (newest_ == kNone ? oldest_ : at(newest_).newer) = id;
    newest_ = id;
  }
  void put_oldest(int32_t id) {
    remove(id);
    at(id) = {.newer = oldest_, .older = kNone, .listed = true};
    (oldest_ == kNone ? newest_ : at(oldest_).older) = id;
    oldest_ = id;
  }
  void remove(int32_t id) {
    Link& link = at(id);
    if (!link.listed) return;
    (link.newer == kNone ? newest_ : at(link.newer).older) = link.older;
    (link.older == kNone ? oldest_ : at(link.older).newer) = link.newer;
    link.listed = false;
  }

 private:
  struct Link {
    int32_t newer = kNone;
    int32_t older = kNone;
    bool listed = false;
  };
  Link& at(int32_t id) { return links_[static_cast<size_t>(id)]; }
  const Link& at(int32_t id) const { return links_[static_cast<size_t>(id)]; }

  std::vector<Link> links_;
  int32_t newest_ = kNone;
  int32_t oldest_ = kNone;
};

}  // namespace baton::cache
