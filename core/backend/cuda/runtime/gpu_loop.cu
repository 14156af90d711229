#include <cuda_runtime.h>

#include <string>

#include "core/backend/cuda/runtime/gpu.h"

// A trial of loops in graphs. A loop is a conditional node, and the graph that it repeats is its body.
// Drivers before CUDA 12.3 have no conditional nodes. Newer drivers may refuse cooperative launches in a
// body: the NVIDIA Technical Blog, "Dynamic Control Flow in CUDA Graphs with Conditional Nodes", says that
// CUDA 12.4 supports no cooperative kernels there. So the version of the driver does not tell enough, and the
// trial runs a tiny loop.

namespace speclab::cuda {
namespace {

constexpr unsigned kRounds = 2;

__global__ void try_nothing() {}

__global__ void try_again(cudaGraphConditionalHandle handle, unsigned* rounds) {
  const unsigned done = *rounds + 1;
  *rounds = done;
  cudaGraphSetConditional(handle, done < kRounds ? 1 : 0);
}

/// Makes, runs and checks the loop. Stops at the first call that fails.
class LoopTrial {
 public:
  ~LoopTrial() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (rounds_ != nullptr) cudaFree(rounds_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaGetLastError();  // clears an error that the trial has reported
  }

  /// Why the loop does not run; "" if it does.
  std::string problem(bool cooperative) {
    unsigned counted = 0;
    if (done(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate") &&
        done(cudaMalloc(reinterpret_cast<void**>(&rounds_), sizeof *rounds_), "cudaMalloc") &&
        done(cudaMemset(rounds_, 0, sizeof *rounds_), "cudaMemset") && build(cooperative) &&
        done(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate") &&
        done(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch") &&
        done(cudaStreamSynchronize(stream_), "cudaStreamSynchronize") &&
        done(cudaMemcpy(&counted, rounds_, sizeof counted, cudaMemcpyDeviceToHost), "cudaMemcpy") &&
        counted != kRounds) {
      problem_ = "it ran " + std::to_string(counted) + " rounds of " + std::to_string(kRounds);
    }
    return problem_;
  }

 private:
  bool done(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return true;
    problem_ = std::string(call) + ": " + cudaGetErrorString(status);
    return false;
  }

  bool build(bool cooperative) {
    cudaGraphConditionalHandle handle = 0;
    cudaGraphNodeParams body = {};
    cudaGraphNode_t node = nullptr;
    if (!done(cudaGraphCreate(&graph_, 0), "cudaGraphCreate") ||
        !done(cudaGraphConditionalHandleCreate(&handle, graph_, 1, cudaGraphCondAssignDefault),
              "cudaGraphConditionalHandleCreate"))
      return false;
    body.type = cudaGraphNodeTypeConditional;
    body.conditional.handle = handle;
    body.conditional.type = cudaGraphCondTypeWhile;
    body.conditional.size = 1;
    if (!done(cudaGraphAddNode(&node, graph_, nullptr, nullptr, 0, &body), "cudaGraphAddNode of a loop") ||
        !done(cudaStreamBeginCaptureToGraph(stream_, body.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                            cudaStreamCaptureModeRelaxed),
              "cudaStreamBeginCaptureToGraph"))
      return false;
    const bool queued = (!cooperative || start_cooperative()) && start_last(handle);
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
    return queued && done(ended, "cudaStreamEndCapture");
  }

  bool start_cooperative() {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2);
    config.blockDim = dim3(32);
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return done(cudaLaunchKernelEx(&config, try_nothing), "the cooperative launch");
  }

  bool start_last(cudaGraphConditionalHandle handle) {
    try_again<<<1, 1, 0, stream_>>>(handle, rounds_);
    return done(cudaGetLastError(), "the launch of a kernel");
  }

  cudaStream_t stream_ = nullptr;
  unsigned* rounds_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::string problem_;
};

}  // namespace

std::string Gpu::loop_problem(bool cooperative) const {
  require_answer();
  use();
  const std::string reason = LoopTrial().problem(cooperative);
  if (reason.empty()) return "";
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return std::string("a graph with a loop") + (cooperative ? " around a cooperative kernel" : "") +
         " does not run on " + name_ + " with a driver for CUDA " + std::to_string(driver / 1000) + "." +
         std::to_string(driver % 1000 / 10) + ": " + reason +
         "; each step is a graph of its own instead. A newer driver may run it" +
         (cooperative ? ", if MPS does not run." : ".");
}

}  // namespace speclab::cuda
