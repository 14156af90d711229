// gpu.cu holds no kernel, so the compiler of the host can compile it against the fake runtime.
#include "core/backend/cuda/runtime/gpu.cu"  // NOLINT(bugprone-suspicious-include)
