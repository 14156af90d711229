#pragma once

#include <cstddef>
#include <string>

// Errors about GPUs. They are not in gpu.cu, so nvcc does not have to compile fmt.

namespace speclab::cuda {

[[noreturn]] void fail_no_gpu(const std::string& reason);
[[noreturn]] void fail_ordinal(int ordinal, int count);
/// The driver calls the GPU busy or unavailable, for example because another process uses it exclusively.
[[noreturn]] void fail_busy(int ordinal);
[[noreturn]] void fail_architecture(const std::string& name, int major, int minor);
[[noreturn]] void fail_memory(std::size_t bytes, std::size_t free, std::size_t total, int ordinal,
                              const std::string& name);
/// `device`: its description.
[[noreturn]] void fail_given_up(const std::string& device);
[[noreturn]] void fail_topology(std::size_t nodes, std::size_t edges, std::size_t kernels);
/// `kernel`: the last started one; "" if there is none.
[[noreturn]] void fail_gpu(const char* call, std::size_t bytes, int ordinal, const std::string& name,
                           const char* kernel, const char* reason);

}  // namespace speclab::cuda
