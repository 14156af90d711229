#include "tests/gpu_runtime/fake_cuda.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <utility>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/device_status.h"

namespace speclab {

namespace fake_cuda {
namespace {
Machine the_machine;
thread_local int current_gpu = 0;
cudaError_t last_error = cudaSuccess;
int graphs = 0, loops = 0;

/// Notes the call. Returns the error that the test wants.
cudaError_t note(const char* name) {
  the_machine.calls.push_back({name, current_gpu});
  return last_error =
             the_machine.failing == name ? static_cast<cudaError_t>(the_machine.status) : cudaSuccess;
}
template <typename T>
T handle(std::size_t number) {
  return reinterpret_cast<T>(number);
}
}  // namespace

Machine& machine() { return the_machine; }
int current() { return current_gpu; }
void reset() {
  the_machine = Machine();
  current_gpu = graphs = loops = 0;
  last_error = cudaSuccess;
}
std::vector<int> current_in(const std::string& name) {
  std::vector<int> found;
  for (const Machine::Call& call : the_machine.calls) {
    if (call.name == name) found.push_back(call.current);
  }
  return found;
}

}  // namespace fake_cuda

namespace cuda {
// The parts of Gpu in other files.
PersistentLimits Gpu::persistent_limits() const { return {}; }
bool Gpu::overlaps() const { return false; }
int Gpu::most_shared_bytes() const { return 0; }
std::unique_ptr<DeviceStatus> Gpu::make_status() const { return nullptr; }
std::string Gpu::loop_problem(bool) const { return ""; }
}  // namespace cuda

}  // namespace speclab

using namespace speclab::fake_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().gpus;
  if (machine().driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  return machine().gpus == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "the fake error";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaGetDevice(int* device) {
  *device = current_gpu;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().gpus) return cudaErrorInvalidDevice;
  current_gpu = device;
  return note("cudaSetDevice");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, device == 0 ? "Fake GPU A" : "Fake GPU B");
  properties->major = machine().major;
  properties->minor = machine().minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int, int) {
  std::strcpy(id, "0000:65:00.0");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = machine().free << 20;
  *total = machine().total << 20;
  return note("cudaMemGetInfo");
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = nullptr;
  if (bytes > machine().free << 20) {
    note("cudaMalloc");
    return last_error = cudaErrorMemoryAllocation;
  }
  *memory = handle<void*>(16);
  return note("cudaMalloc");
}
cudaError_t cudaFree(void*) { return note("cudaFree"); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = new char[bytes];
  return note("cudaHostAlloc");
}
cudaError_t cudaFreeHost(void* memory) {
  delete[] static_cast<char*>(memory);
  return note("cudaFreeHost");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = handle<cudaStream_t>(32);
  return note("cudaStreamCreateWithFlags");
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return note("cudaStreamDestroy"); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return note("cudaStreamSynchronize"); }
cudaError_t cudaDeviceSynchronize() { return note("cudaDeviceSynchronize"); }
cudaError_t cudaProfilerStart() { return note("cudaProfilerStart"); }
cudaError_t cudaProfilerStop() { return note("cudaProfilerStop"); }
cudaError_t cudaStreamQuery(cudaStream_t) { return note("cudaStreamQuery"); }
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return note("cudaMemcpyAsync");
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = handle<cudaEvent_t>(48);
  return note("cudaEventCreate");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = handle<cudaEvent_t>(48);
  return note("cudaEventCreateWithFlags");
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return note("cudaEventDestroy"); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return note("cudaEventRecord"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return note("cudaEventSynchronize"); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 2;
  return note("cudaEventElapsedTime");
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return note("cudaStreamBeginCapture");
}
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = handle<cudaGraph_t>(1000 + 16 * static_cast<std::size_t>(++loops));
  return note("cudaGraphCreate");
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* made, cudaGraph_t, unsigned,
                                             unsigned) {
  *made = 7;
  return note("cudaGraphConditionalHandleCreate");
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                             std::size_t, cudaGraphNodeParams* parameters) {
  static cudaGraph_t body = handle<cudaGraph_t>(64);
  parameters->conditional.phGraph_out = &body;
  return note("cudaGraphAddNode");
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, std::size_t, cudaStreamCaptureMode) {
  return note("cudaStreamBeginCaptureToGraph");
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const cudaError_t status = note("cudaStreamEndCapture");
  *graph =
      status == cudaSuccess ? handle<cudaGraph_t>(2000 + 16 * static_cast<std::size_t>(++graphs)) : nullptr;
  return status;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGraphGetEdges(cudaGraph_t, cudaGraphNode_t*, cudaGraphNode_t*, cudaGraphEdgeData*,
                              std::size_t* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = handle<cudaGraphExec_t>(80);
  machine().instantiated.push_back(graph);
  return note("cudaGraphInstantiate");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return note("cudaGraphExecDestroy"); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  machine().destroyed.push_back(graph);
  return note("cudaGraphDestroy");
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return note("cudaGraphLaunch"); }
}
