// An agent of NIXL with its UCX backend: what of the library is used, with owners and messages.
//
// A request copies pieces of own memory into another agent's memory, all at once, and its notice follows behind the last byte. Pieces are
// named by their places in lists that were prepared before, one on either side.
//
// Threads: one, from making it to its end: it has no thread of its own, and gets on with what is posted only inside poll(), status() and
// the posting calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transfer/nixl_library.h"

namespace baton::transfer {

class NixlAgent {
 public:
  // Memory on a GPU, or main memory.
  struct Place {
    int kind = kNixlMainMemory;
    uint64_t device = 0;
  };
  struct Piece {
    uint64_t address = 0;
    int64_t bytes = 0;
  };
  enum class Progress : uint8_t { kDone, kUnderWay, kFailed };

  // Names are unique among all processes that may ever meet.
  static Result<std::unique_ptr<NixlAgent>> make(const NixlFunctions& library, std::string name);
  // Without requests under way: with some it would never end (see abandon).
  ~NixlAgent();
  NixlAgent(const NixlAgent&) = delete;
  NixlAgent& operator=(const NixlAgent&) = delete;
  // Leaves everything to the system: an agent whose requests do not end.
  static void abandon(std::unique_ptr<NixlAgent> agent);

  // Before address(). Registered until the end.
  Status add_memory(Place place, std::span<const Piece> pieces);
  Result<std::vector<std::byte>> address() const;

  // The name of the agent whose address this is. Connecting starts with it.
  Result<std::string> add_peer(std::span<const std::byte> address);
  // When its requests and lists are released. Nothing of it is kept.
  void drop_peer(const std::string& name);

  // Of own pieces, where `peer` is empty.
  Result<NixlHandle> prepare(const std::string& peer, Place place, std::span<const Piece> pieces);
  void release_list(NixlHandle list);

  // As many indices on either side, at least one. On failure `request` is null or to be released.
  Progress write(NixlHandle own, std::span<const int> own_indices, NixlHandle remote, std::span<const int> remote_indices,
                 std::span<const std::byte> notice, NixlHandle& request);
  Progress status(NixlHandle request);
  // Whether it was over; one that is not goes on, unheeded, as long as its connection lives.
  bool release_request(NixlHandle request);

  // A notice alone.
  Status notify(const std::string& peer, std::span<const std::byte> notice);
  // Gets on with everything, and hands over notices that have come.
  void poll(const std::function<void(std::span<const std::byte> notice)>& take);

 private:
  explicit NixlAgent(const NixlFunctions& library) : nixl_(library) {}
  Result<NixlHandle> arguments(std::span<const std::byte> notice) const;

  const NixlFunctions& nixl_;
  std::string name_;
  NixlHandle agent_ = nullptr, backend_ = nullptr, notices_ = nullptr;
  std::vector<NixlHandle> registered_;
};

}  // namespace baton::transfer
