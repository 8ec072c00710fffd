// Whether the library does what nixl_library.h declares: two agents of this process, a page from one to the other, and a notice behind it.
#pragma once

#include "base/result.h"
#include "transfer/nixl_library.h"

namespace baton::transfer {

// The first time it takes a second; from then on it gives the same answer. From any thread. kUnsupported: it does not.
Status nixl_self_test(const NixlFunctions& library);

}  // namespace baton::transfer
