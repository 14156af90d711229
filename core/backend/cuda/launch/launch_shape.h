#pragma once

namespace speclab::simt {
class Machine;
}

namespace speclab::cuda {

/// Geometry of one launch, the same for a GPU and for simt::Machine.
struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;  ///< blocks
  int threads = 32;                        ///< per block: a multiple of 32, at most 1024
  int shared_bytes = 0;                    ///< dynamic shared memory of a block
};

/// Returns the shape for a device whose blocks have at most `most_shared_bytes` of shared memory: 163 KiB on
/// sm_80, 227 KiB on sm_90, 99 KiB on sm_86 and sm_89. Only kernels with within() can run in smaller blocks.
template <typename Kernel>
LaunchShape fitted(const LaunchShape& shape, int most_shared_bytes) {
  if constexpr (requires { Kernel::within(shape, most_shared_bytes); })
    return Kernel::within(shape, most_shared_bytes);
  else return shape;
}

/// Where launches run, one after the other: the stream of a GPU, or a simulated GPU.
struct Stream {
  void* device = nullptr;  ///< a cudaStream_t (null: the default stream); unused if `machine` is set
  simt::Machine* machine = nullptr;  ///< a simulated GPU: launches are done when they return
  /// Launches may start while the one before them ends (simt.h, "Launches of a stream may overlap").
  bool overlap = false;
};

/// Throws Error that says that the device refused a launch.
[[noreturn]] void fail_launch(const char* kernel, const LaunchShape& shape, const char* reason);
/// Throws Bug. Call it for arguments that no caller may pass.
[[noreturn]] void fail_arguments(const char* kernel, const char* reason);

}  // namespace speclab::cuda
