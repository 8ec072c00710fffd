// NIXL's C interface, loaded at run time: every function of it that is called, declared here and nowhere else.
//
// The library comes without headers for it, so a mistake in a line below would not be noticed by the compiler and would destroy memory;
// nixl_self_test.h looks at what they do before anything depends on them. Version 1.5.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"

namespace baton::transfer {

// Opaque to us. A function's result is 0: done, 1: in progress, negative: failed.
using NixlHandle = void*;

inline constexpr int kNixlDone = 0, kNixlInProgress = 1;
inline constexpr int kNixlMainMemory = 0, kNixlDeviceMemory = 1;
inline constexpr int kNixlWrite = 1;

struct NixlAgentSettings {
  bool progress_thread = false;
  bool listen_thread = false;
  int listen_port = 0;
  int thread_sync = 0;
  unsigned workers = 0;
  uint64_t progress_delay_us = 0;
  uint64_t listen_delay_us = 0;
  bool telemetry = false;
};

struct NixlFunctions {
  bool (*is_stub)();
  int (*create_configured_agent)(const char* name, const NixlAgentSettings* settings, NixlHandle* agent);
  int (*destroy_agent)(NixlHandle agent);
  int (*create_params)(NixlHandle* params);
  int (*params_add)(NixlHandle params, const char* key, const char* value);
  int (*destroy_params)(NixlHandle params);
  int (*create_backend)(NixlHandle agent, const char* plugin, NixlHandle params, NixlHandle* backend);
  int (*destroy_backend)(NixlHandle backend);  // our handle of it; it ends with its agent
  int (*create_opt_args)(NixlHandle* arguments);
  int (*destroy_opt_args)(NixlHandle arguments);
  int (*opt_args_add_backend)(NixlHandle arguments, NixlHandle backend);
  int (*opt_args_set_notif_msg)(NixlHandle arguments, const void* data, size_t bytes);
  int (*opt_args_set_has_notif)(NixlHandle arguments, bool has);
  int (*create_reg_dlist)(int memory, NixlHandle* list, bool sorted);
  int (*destroy_reg_dlist)(NixlHandle list);
  int (*reg_dlist_add_desc)(NixlHandle list, uintptr_t address, size_t bytes, uint64_t device, const void* meta, size_t meta_bytes);
  int (*register_mem)(NixlHandle agent, NixlHandle list, NixlHandle arguments);
  int (*deregister_mem)(NixlHandle agent, NixlHandle list, NixlHandle arguments);
  int (*get_local_md)(NixlHandle agent, void** data, size_t* bytes);                     // freed with free()
  int (*load_remote_md)(NixlHandle agent, const void* data, size_t bytes, char** name);  // freed with free()
  int (*invalidate_remote_md)(NixlHandle agent, const char* name);
  int (*agent_make_connection)(NixlHandle agent, const char* name, NixlHandle arguments);
  int (*create_xfer_dlist)(int memory, NixlHandle* list, bool sorted);
  int (*destroy_xfer_dlist)(NixlHandle list);
  int (*xfer_dlist_add_desc)(NixlHandle list, uintptr_t address, size_t bytes, uint64_t device);
  int (*prep_xfer_dlist)(NixlHandle agent, const char* name, NixlHandle list, NixlHandle* prepared, NixlHandle arguments);  // "": own side
  int (*release_xfer_dlist_handle)(NixlHandle agent, NixlHandle prepared);
  int (*make_xfer_req)(NixlHandle agent, int operation, NixlHandle own, const int* own_indices, size_t own_count, NixlHandle remote,
                       const int* remote_indices, size_t remote_count, NixlHandle* request, NixlHandle arguments);
  int (*post_xfer_req)(NixlHandle agent, NixlHandle request, NixlHandle arguments);
  int (*get_xfer_status)(NixlHandle agent, NixlHandle request);
  int (*release_xfer_req)(NixlHandle agent, NixlHandle request);
  int (*destroy_xfer_req)(NixlHandle request);  // our handle of it, when it is released
  int (*gen_notif)(NixlHandle agent, const char* name, const void* data, size_t bytes, NixlHandle arguments);
  int (*create_notif_map)(NixlHandle* map);
  int (*destroy_notif_map)(NixlHandle map);
  int (*get_notifs)(NixlHandle agent, NixlHandle map, NixlHandle arguments);
  int (*notif_map_size)(NixlHandle map, size_t* agents);
  int (*notif_map_get_agent_at)(NixlHandle map, size_t index, const char** name);
  int (*notif_map_get_notifs_size)(NixlHandle map, const char* name, size_t* count);
  int (*notif_map_get_notif)(NixlHandle map, const char* name, size_t index, const void** data, size_t* bytes);
  int (*notif_map_clear)(NixlHandle map);
};

// The folders that are searched: the one that the environment's BATON_NIXL names, or else ../lib/baton and ../../nixl beside the program.
// A folder is laid out as the PyPI package: .nixl_cu13.mesonpy.libs and nixl_cu13.libs.
std::vector<std::filesystem::path> nixl_folders();

// Of the first of nixl_folders() that has the library. Loaded once for the process, and kept; from any thread. kUnsupported: it is not
// there, or not usable; the message says what to do.
Result<const NixlFunctions*> load_nixl();

}  // namespace baton::transfer
