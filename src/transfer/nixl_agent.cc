#include "transfer/nixl_agent.h"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace baton::transfer {
namespace {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};

Error failed(const char* what, int code) {
  return {Error::Kind::kIo,
          fmt::format("the library NIXL could not {} (code {}); its own messages say more, with NIXL_LOG_LEVEL=INFO", what, code)};
}

}  // namespace

Result<std::unique_ptr<NixlAgent>> NixlAgent::make(const NixlFunctions& library, std::string name) {
  std::unique_ptr<NixlAgent> a(new NixlAgent(library));
  a->name_ = std::move(name);
  const NixlAgentSettings settings;
  if (const int code = library.create_configured_agent(a->name_.c_str(), &settings, &a->agent_); code != kNixlDone)
    return failed("make an agent", code);
  NixlHandle params = nullptr;
  int code = library.create_params(&params);
  // Whoever dies is noticed: without this, what was posted to it would never end.
  if (code == kNixlDone) code = library.params_add(params, "ucx_error_handling_mode", "peer");
  if (code == kNixlDone) code = library.create_backend(a->agent_, "UCX", params, &a->backend_);
  if (params != nullptr) library.destroy_params(params);
  if (code != kNixlDone) return failed("start its UCX backend", code);
  if (code = library.create_notif_map(&a->notices_); code != kNixlDone) return failed("make a list of notices", code);
  return a;
}

NixlAgent::~NixlAgent() {
  if (agent_ == nullptr) return;
  for (const NixlHandle list : registered_) {
    nixl_.deregister_mem(agent_, list, nullptr);
    nixl_.destroy_reg_dlist(list);
  }
  if (notices_ != nullptr) nixl_.destroy_notif_map(notices_);
  if (backend_ != nullptr) nixl_.destroy_backend(backend_);
  nixl_.destroy_agent(agent_);
}

void NixlAgent::abandon(std::unique_ptr<NixlAgent> agent) {
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<NixlAgent>>;  // never ended
  const std::lock_guard lock(mutex);
  all->push_back(std::move(agent));
}

Result<NixlHandle> NixlAgent::arguments(std::span<const std::byte> notice) const {
  NixlHandle made = nullptr;
  int code = nixl_.create_opt_args(&made);
  if (code == kNixlDone) code = nixl_.opt_args_add_backend(made, backend_);
  if (code == kNixlDone && !notice.empty()) code = nixl_.opt_args_set_notif_msg(made, notice.data(), notice.size());
  if (code == kNixlDone && !notice.empty()) code = nixl_.opt_args_set_has_notif(made, true);
  if (code == kNixlDone) return made;
  if (made != nullptr) nixl_.destroy_opt_args(made);
  return failed("take arguments", code);
}

Status NixlAgent::add_memory(Place place, std::span<const Piece> pieces) {
  NixlHandle list = nullptr;
  int code = nixl_.create_reg_dlist(place.kind, &list, false);
  for (const Piece& p : pieces)
    if (code == kNixlDone) code = nixl_.reg_dlist_add_desc(list, p.address, static_cast<size_t>(p.bytes), place.device, nullptr, 0);
  if (code == kNixlDone) code = nixl_.register_mem(agent_, list, nullptr);
  if (code == kNixlDone) {
    registered_.push_back(list);
    return {};
  }
  if (list != nullptr) nixl_.destroy_reg_dlist(list);
  return failed("register the memory of pages and slots", code);
}

Result<std::vector<std::byte>> NixlAgent::address() const {
  void* data = nullptr;
  size_t bytes = 0;
  if (const int code = nixl_.get_local_md(agent_, &data, &bytes); code != kNixlDone) return failed("say how it is reached", code);
  const std::unique_ptr<void, FreeMemory> owner(data);
  const auto* first = static_cast<const std::byte*>(data);
  return std::vector<std::byte>(first, first + bytes);
}

Result<std::string> NixlAgent::add_peer(std::span<const std::byte> address) {
  char* name = nullptr;
  if (const int code = nixl_.load_remote_md(agent_, address.data(), address.size(), &name); code != kNixlDone)
    return failed("read how the other process is reached", code);
  const std::unique_ptr<void, FreeMemory> owner(name);
  std::string peer(name);
  if (const int code = nixl_.agent_make_connection(agent_, name, nullptr); code != kNixlDone) {
    drop_peer(peer);
    return failed("connect to the other process", code);
  }
  return peer;
}

void NixlAgent::drop_peer(const std::string& name) { nixl_.invalidate_remote_md(agent_, name.c_str()); }

Result<NixlHandle> NixlAgent::prepare(const std::string& peer, Place place, std::span<const Piece> pieces) {
  NixlHandle list = nullptr, prepared = nullptr;
  int code = nixl_.create_xfer_dlist(place.kind, &list, false);
  for (const Piece& p : pieces)
    if (code == kNixlDone) code = nixl_.xfer_dlist_add_desc(list, p.address, static_cast<size_t>(p.bytes), place.device);
  if (code == kNixlDone) code = nixl_.prep_xfer_dlist(agent_, peer.c_str(), list, &prepared, nullptr);
  if (list != nullptr) nixl_.destroy_xfer_dlist(list);
  if (code != kNixlDone) return failed("make a list of pages", code);
  return prepared;
}

void NixlAgent::release_list(NixlHandle list) {
  if (list != nullptr) nixl_.release_xfer_dlist_handle(agent_, list);
}

NixlAgent::Progress NixlAgent::write(NixlHandle own, std::span<const int> own_indices, NixlHandle remote,
                                     std::span<const int> remote_indices, std::span<const std::byte> notice, NixlHandle& request) {
  BATON_CHECK(own_indices.size() == remote_indices.size() && !own_indices.empty());
  request = nullptr;
  const Result<NixlHandle> with = arguments(notice);
  if (!with.ok()) return Progress::kFailed;
  int code = nixl_.make_xfer_req(agent_, kNixlWrite, own, own_indices.data(), own_indices.size(), remote, remote_indices.data(),
                                 remote_indices.size(), &request, *with);
  if (code == kNixlDone) code = nixl_.post_xfer_req(agent_, request, *with);
  nixl_.destroy_opt_args(*with);
  return code == kNixlDone ? Progress::kDone : code == kNixlInProgress ? Progress::kUnderWay : Progress::kFailed;
}

NixlAgent::Progress NixlAgent::status(NixlHandle request) {
  const int code = nixl_.get_xfer_status(agent_, request);
  return code == kNixlDone ? Progress::kDone : code == kNixlInProgress ? Progress::kUnderWay : Progress::kFailed;
}

bool NixlAgent::release_request(NixlHandle request) {
  if (request == nullptr) return true;
  const bool over = status(request) != Progress::kUnderWay;
  const bool released = nixl_.release_xfer_req(agent_, request) == kNixlDone;
  if (released) nixl_.destroy_xfer_req(request);
  return over && released;
}

Status NixlAgent::notify(const std::string& peer, std::span<const std::byte> notice) {
  if (const int code = nixl_.gen_notif(agent_, peer.c_str(), notice.data(), notice.size(), nullptr); code != kNixlDone)
    return failed("send a notice", code);
  return {};
}

void NixlAgent::poll(const std::function<void(std::span<const std::byte> notice)>& take) {
  size_t agents = 0;
  if (nixl_.get_notifs(agent_, notices_, nullptr) != kNixlDone || nixl_.notif_map_size(notices_, &agents) != kNixlDone || agents == 0)
    return;
  for (size_t i = 0; i < agents; ++i) {
    const char* name = nullptr;
    size_t count = 0;
    if (nixl_.notif_map_get_agent_at(notices_, i, &name) != kNixlDone ||
        nixl_.notif_map_get_notifs_size(notices_, name, &count) != kNixlDone)
      continue;
    for (size_t k = 0; k < count; ++k) {
      const void* data = nullptr;
      size_t bytes = 0;
      if (nixl_.notif_map_get_notif(notices_, name, k, &data, &bytes) == kNixlDone) take({static_cast<const std::byte*>(data), bytes});
    }
  }
  nixl_.notif_map_clear(notices_);
}

}  // namespace baton::transfer
