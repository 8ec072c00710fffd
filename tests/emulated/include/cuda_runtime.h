// Enough of CUDA for device code to run on a CPU: a thread of a block is a thread of the process. See emulated/simt.h.
#pragma once

#include "emulated/simt.h"
