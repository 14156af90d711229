#include "core/backend/cuda/runtime/gpu.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstring>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/gpu_error.h"
#include "core/backend/cuda/runtime/staging.h"

namespace speclab::cuda {
namespace {

/// Returns the text of an error that is about to be reported. The runtime keeps the last error until it is
/// read. So this function also reads it, because a later call must not find it. An error that made the device
/// unusable stays.
const char* report(cudaError_t status) {
  cudaGetLastError();
  return cudaGetErrorString(status);
}

}  // namespace

std::string gpu_absent() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 &&
        cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
      return "no CUDA driver that is new enough: the driver supports CUDA " + std::to_string(driver / 1000) +
             "." + std::to_string(driver % 1000 / 10) + ", and this program was built with CUDA " +
             std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
    }
    return "no CUDA driver: libcuda.so.1 was not found";
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "no GPU: the CUDA driver sees none";
  if (status != cudaSuccess) return std::string("no usable GPU: ") + report(status);
  return "";
}

std::string gpu_bus_id(int ordinal) {
  char id[32] = {};
  const cudaError_t status = cudaDeviceGetPCIBusId(id, sizeof id, ordinal);
  if (status != cudaSuccess) fail_gpu("cudaDeviceGetPCIBusId", 0, ordinal, "", "", report(status));
  return id;
}

std::size_t gpu_free_bytes(int ordinal) {
  std::size_t free = 0, total = 0;
  int before = ordinal;
  cudaError_t status = cudaGetDevice(&before);
  if (status == cudaSuccess) status = cudaSetDevice(ordinal);
  if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
  if (before != ordinal) cudaSetDevice(before);
  if (status != cudaSuccess) fail_gpu("cudaMemGetInfo", 0, ordinal, "", "", report(status));
  return free;
}

void Gpu::check(int status, const char* call, std::size_t bytes) const {
  if (status == cudaSuccess) return;
  explain();
  fail_gpu(call, bytes, ordinal_, name_, kernel_, report(static_cast<cudaError_t>(status)));
}

Gpu::Gpu(int ordinal) : ordinal_(ordinal) {
  if (const std::string reason = gpu_absent(); !reason.empty()) fail_no_gpu(reason);
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount", 0);
  if (ordinal < 0 || ordinal >= count) fail_ordinal(ordinal, count);
  cudaDeviceProp properties;
  const cudaError_t chosen = cudaSetDevice(ordinal);
  if (chosen == cudaErrorDevicesUnavailable) fail_busy(ordinal);
  check(chosen, "cudaSetDevice", 0);
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties", 0);
  name_ = properties.name;
  architecture_ = properties.major * 10 + properties.minor;
  if (architecture_ < 80) fail_architecture(name_, properties.major, properties.minor);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate", 0);
  stream_ = stream;
  void* pinned = nullptr;
  check(cudaHostAlloc(&pinned, 2 * kStaged, cudaHostAllocDefault), "cudaHostAlloc", 2 * kStaged);
  pinned_ = static_cast<char*>(pinned);
  check(cudaHostAlloc(&pinned, 2 * kStaged, cudaHostAllocDefault), "cudaHostAlloc", 2 * kStaged);
  fetched_ = static_cast<char*>(pinned);
  for (void*& event : copied_) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreate", 0);
    event = made;
  }
  for (void*& event : arrived_) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreate", 0);
    event = made;
  }
}

Gpu::~Gpu() {
  if (*given_up()) return;
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  for (void* event : copied_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  for (void* event : arrived_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  cudaFreeHost(pinned_);
  cudaFreeHost(fetched_);
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

void Gpu::use() const {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == ordinal_) return;
  check(cudaSetDevice(ordinal_), "cudaSetDevice", 0);
}

std::shared_ptr<void> Gpu::allocate(std::size_t bytes) {
  require_answer();
  use();
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes > 0 ? bytes : 1);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears this error, which is handled here
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", 0);
    fail_memory(bytes, free, total, ordinal_, name_);
  }
  check(status, "cudaMalloc", bytes);
  return {data, [lost = given_up()](void* p) {
            if (!*lost) cudaFree(p);
          }};
}

std::shared_ptr<void> Gpu::allocate_shared(std::size_t bytes) {
  require_answer();
  use();
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc", bytes);
  return {data, [lost = given_up()](void* p) {
            if (!*lost) cudaFreeHost(p);
          }};
}

// Captures in relaxed mode, because buffers may grow while their first use is recorded, and the other modes
// forbid allocating memory.
std::uint64_t Gpu::begin_capture(bool loop) {
  require_answer();
  use();
  const auto stream = static_cast<cudaStream_t>(stream_);
  if (!loop) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture", 0);
    return 0;
  }
  cudaGraph_t graph = nullptr;
  check(cudaGraphCreate(&graph, 0), "cudaGraphCreate", 0);
  captured_ = graph;
  cudaGraphConditionalHandle handle = 0;
  check(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault),
        "cudaGraphConditionalHandleCreate", 0);
  cudaGraphNodeParams body = {};
  body.type = cudaGraphNodeTypeConditional;
  body.conditional.handle = handle;
  body.conditional.type = cudaGraphCondTypeWhile;
  body.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &body), "cudaGraphAddNode of a loop", 0);
  check(cudaStreamBeginCaptureToGraph(stream, body.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeRelaxed),
        "cudaStreamBeginCaptureToGraph", 0);
  return handle;
}

void Gpu::drop_capture() {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(static_cast<cudaStream_t>(stream_), &graph);
  cudaGetLastError();  // clears this error; the exception that is already being thrown says what went wrong
  void* outer = std::exchange(captured_, nullptr);
  if (outer != nullptr) graph = static_cast<cudaGraph_t>(outer);
  if (graph != nullptr) cudaGraphDestroy(graph);
}

std::shared_ptr<void> Gpu::end_capture(std::size_t kernels) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  cudaGraph_t body = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &body);
  // Takes the graph around the loop even if the capture failed, because the next capture may have no loop.
  void* outer = std::exchange(captured_, nullptr);
  const auto graph = outer != nullptr ? static_cast<cudaGraph_t>(outer) : body;
  const std::shared_ptr<void> held(graph, [](void* g) {
    if (g != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(g));
  });
  check(ended, "cudaStreamEndCapture", 0);
  std::size_t nodes = 0, edges = kernels + 1;  // room for one edge too many
  check(cudaGraphGetNodes(body, nullptr, &nodes), "cudaGraphGetNodes", 0);
  std::vector<cudaGraphNode_t> from(edges), to(edges);
  std::vector<cudaGraphEdgeData> data(edges);  // launches that overlap have edges with data
  check(cudaGraphGetEdges(body, from.data(), to.data(), data.data(), &edges), "cudaGraphGetEdges", 0);
  if (nodes != kernels || edges + 1 != kernels) fail_topology(nodes, edges, kernels);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate", 0);
  return {executable, [stream, lost = given_up()](void* g) {
            if (*lost) return;
            cudaStreamSynchronize(stream);
            cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(g));
          }};
}

void Gpu::replay(void* graph) {
  require_answer();
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream_)),
        "cudaGraphLaunch", 0);
}

bool Gpu::idle() const {
  require_answer();
  const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(stream_));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // clears cudaErrorNotReady, which is not a failure
    return false;
  }
  check(status, "cudaStreamQuery", 0);
  return true;
}

void Gpu::upload(const void* host, std::size_t bytes, void* to) {
  require_answer();
  const auto stream = static_cast<cudaStream_t>(stream_);
  if (bytes > kStaged) {
    check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync to the device",
          bytes);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", 0);
    return;
  }
  if (used_ + bytes > kStaged) {
    check(cudaEventRecord(static_cast<cudaEvent_t>(copied_[half_]), stream), "cudaEventRecord", 0);
    pending_[half_] = true;
    half_ = 1 - half_;
    used_ = 0;
    if (std::exchange(pending_[half_], false))
      check(cudaEventSynchronize(static_cast<cudaEvent_t>(copied_[half_])), "cudaEventSynchronize", 0);
  }
  char* staged = pinned_ + static_cast<std::size_t>(half_) * kStaged + used_;
  std::memcpy(staged, host, bytes);
  used_ += (bytes + 63) / 64 * 64;
  check(cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync to the device",
        bytes);
}

void Gpu::upload_beside(const void* host, std::size_t bytes, void* to) {
  require_answer();
  use();
  cudaStream_t own = nullptr;
  check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "cudaStreamCreate", 0);
  const std::shared_ptr<void> held(
      own, [](void* stream) { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); });
  check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, own), "cudaMemcpyAsync to the device",
        bytes);
  check(cudaStreamSynchronize(own), "cudaStreamSynchronize", 0);
}

void Gpu::download(const void* from, std::size_t bytes, void* host) {
  require_answer();
  const auto stream = static_cast<cudaStream_t>(stream_);
  in_pieces(
      static_cast<const char*>(from), bytes, kStaged, static_cast<char*>(host), fetched_,
      [&](char* staged, const char* piece, std::size_t size, int half) {
        check(cudaMemcpyAsync(staged, piece, size, cudaMemcpyDeviceToHost, stream),
              "cudaMemcpyAsync to the host", size);
        check(cudaEventRecord(static_cast<cudaEvent_t>(arrived_[half]), stream), "cudaEventRecord", 0);
      },
      [&](int half) {
        check(cudaEventSynchronize(static_cast<cudaEvent_t>(arrived_[half])), "cudaEventSynchronize", 0);
      });
}

void Gpu::copy(const void* from, std::size_t bytes, void* to) {
  require_answer();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream_)),
        "cudaMemcpyAsync on the device", bytes);
}

namespace {

/// Measures with two events in the stream. The GPU must outlive the timer. The destructor does not wait,
/// because destroying an event does not wait.
class GpuTimer final : public DeviceTimer {
 public:
  explicit GpuTimer(const Gpu& gpu) : gpu_(gpu), stream_(static_cast<cudaStream_t>(gpu.stream().device)) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~GpuTimer() override {
    if (*gpu_.given_up()) return;
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;
  void begin() override {
    gpu_.require_answer();
    check(cudaEventRecord(events_[0], stream_), "cudaEventRecord before a timing");
  }
  void stop() override {
    gpu_.require_answer();
    check(cudaEventRecord(events_[1], stream_), "cudaEventRecord after a timing");
  }
  double seconds() override {
    gpu_.require_answer();
    float milliseconds = 0;
    check(cudaEventSynchronize(events_[1]), "cudaEventSynchronize of a timing");
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  void check(cudaError_t status, const char* call) const {
    if (status == cudaSuccess) return;
    gpu_.explain();
    fail_gpu(call, 0, gpu_.ordinal(), gpu_.name(), "", report(status));
  }
  const Gpu& gpu_;
  cudaStream_t stream_;
  cudaEvent_t events_[2] = {};
};

}  // namespace

std::unique_ptr<DeviceTimer> Gpu::make_timer() const { return std::make_unique<GpuTimer>(*this); }

void gpu_profile(int ordinal, bool begin) {
  cudaError_t status = cudaSetDevice(ordinal);
  if (status == cudaSuccess) status = cudaDeviceSynchronize();
  if (status == cudaSuccess) status = begin ? cudaProfilerStart() : cudaProfilerStop();
  if (status != cudaSuccess)
    fail_gpu(begin ? "cudaProfilerStart" : "cudaProfilerStop", 0, ordinal, "", "",
             cudaGetErrorString(status));
}

double gpu_copy_bandwidth(int ordinal) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  Gpu gpu(ordinal);
  const std::shared_ptr<void> from = gpu.allocate(kBytes), to = gpu.allocate(kBytes);
  GpuTimer timer(gpu);
  double best = 0;
  for (int pass = 0; pass < 8; ++pass) {  // the first one warms up
    timer.begin();
    gpu.copy(from.get(), kBytes, to.get());
    const double seconds = timer.end();
    if (pass > 0) best = best > 2 * kBytes / seconds ? best : 2 * kBytes / seconds;
  }
  return best;
}

}  // namespace speclab::cuda
