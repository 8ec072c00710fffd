#include "transfer/nixl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

namespace baton::transfer {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = ".nixl_cu13.mesonpy.libs/libnixl_capi.so";

Error unusable(const std::string& what) {
  return {Error::Kind::kUnsupported,
          fmt::format("writing into other processes is not available: {}. Run scripts/setup nixl, or name a folder that has the PyPI "
                      "package nixl-cu13 1.5.1 in the environment's BATON_NIXL",
                      what)};
}

}  // namespace

std::vector<fs::path> nixl_folders() {
  std::vector<fs::path> result;
  if (const char* named = std::getenv("BATON_NIXL"); named != nullptr && *named != '\0') return {named};
  std::error_code failed;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path(); !failed && !program.empty()) {
    result.push_back(program / "../lib/baton");
    result.push_back(program / "../../nixl");
  }
  return result;
}

Result<const NixlFunctions*> load_nixl() {
  static std::mutex mutex;
  static std::unique_ptr<const NixlFunctions> loaded;
  const std::scoped_lock lock(mutex);
  if (loaded != nullptr) return loaded.get();

  fs::path chosen;
  std::string searched;
  for (const fs::path& candidate : nixl_folders()) {
    std::error_code ignored;
    if (chosen.empty() && fs::exists(candidate / kFile, ignored)) chosen = candidate / kFile;
    searched += (searched.empty() ? "" : ", ") + candidate.lexically_normal().string();
  }
  if (chosen.empty()) return unusable(fmt::format("the library NIXL was not found in {}", searched));
  // Never closed: it keeps threads and global state.
  void* library = ::dlopen(chosen.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unusable(fmt::format("the library cannot be loaded: {}", ::dlerror()));
  auto functions = std::make_unique<NixlFunctions>();
  NixlFunctions& f = *functions;
  std::string lacking;
  const auto find = [&](auto& function, const char* name) {
    const std::string whole = fmt::format("nixl_capi_{}", name);
    void* symbol = ::dlsym(library, whole.c_str());
    if (symbol == nullptr && lacking.empty()) lacking = whole;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
#define BATON_NIXL_FIND(name) find(f.name, #name)
  BATON_NIXL_FIND(is_stub);
  BATON_NIXL_FIND(create_configured_agent);
  BATON_NIXL_FIND(destroy_agent);
  BATON_NIXL_FIND(create_params);
  BATON_NIXL_FIND(params_add);
  BATON_NIXL_FIND(destroy_params);
  BATON_NIXL_FIND(create_backend);
  BATON_NIXL_FIND(destroy_backend);
  BATON_NIXL_FIND(create_opt_args);
  BATON_NIXL_FIND(destroy_opt_args);
  BATON_NIXL_FIND(opt_args_add_backend);
  BATON_NIXL_FIND(opt_args_set_notif_msg);
  BATON_NIXL_FIND(opt_args_set_has_notif);
  BATON_NIXL_FIND(create_reg_dlist);
  BATON_NIXL_FIND(destroy_reg_dlist);
  BATON_NIXL_FIND(reg_dlist_add_desc);
  BATON_NIXL_FIND(register_mem);
  BATON_NIXL_FIND(deregister_mem);
  BATON_NIXL_FIND(get_local_md);
  BATON_NIXL_FIND(load_remote_md);
  BATON_NIXL_FIND(invalidate_remote_md);
  BATON_NIXL_FIND(agent_make_connection);
  BATON_NIXL_FIND(create_xfer_dlist);
  BATON_NIXL_FIND(destroy_xfer_dlist);
  BATON_NIXL_FIND(xfer_dlist_add_desc);
  BATON_NIXL_FIND(prep_xfer_dlist);
  BATON_NIXL_FIND(release_xfer_dlist_handle);
  BATON_NIXL_FIND(make_xfer_req);
  BATON_NIXL_FIND(post_xfer_req);
  BATON_NIXL_FIND(get_xfer_status);
  BATON_NIXL_FIND(release_xfer_req);
  BATON_NIXL_FIND(destroy_xfer_req);
  BATON_NIXL_FIND(gen_notif);
  BATON_NIXL_FIND(create_notif_map);
  BATON_NIXL_FIND(destroy_notif_map);
  BATON_NIXL_FIND(get_notifs);
  BATON_NIXL_FIND(notif_map_size);
  BATON_NIXL_FIND(notif_map_get_agent_at);
  BATON_NIXL_FIND(notif_map_get_notifs_size);
  BATON_NIXL_FIND(notif_map_get_notif);
  BATON_NIXL_FIND(notif_map_clear);
#undef BATON_NIXL_FIND
  if (!lacking.empty()) return unusable(fmt::format("{} has no function {}", chosen.string(), lacking));
  if (f.is_stub()) return unusable(fmt::format("{} is a stub that does nothing", chosen.string()));
  loaded = std::move(functions);
  return loaded.get();
}

}  // namespace baton::transfer
