// cuBLASLt beside our linear layers: the library of the toolkit on the machine, loaded when it is asked for. Only its header is
// needed to build this; where that is missing too, the benchmarks say so.
#include <fmt/format.h>

#include "experiments/bench/bench.h"

#if defined(SPECLAB_CUBLASLT)
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/backend/cuda/gpu.h"
#endif

namespace speclab::bench {
namespace {

#if defined(SPECLAB_CUBLASLT)

constexpr std::size_t kWorkspace = std::size_t{32} << 20;

#define SPECLAB_LIBRARY_FUNCTION(name) decltype(&::cublasLt##name) name = find<decltype(&::cublasLt##name)>("cublasLt" #name)

/// The functions that are used. Throws std::runtime_error when there is no library.
class Library {
 public:
  Library() {
    if (Create(&handle) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLASLt did not start");
  }
  SPECLAB_LIBRARY_FUNCTION(Create);
  SPECLAB_LIBRARY_FUNCTION(MatmulDescCreate);
  SPECLAB_LIBRARY_FUNCTION(MatmulDescSetAttribute);
  SPECLAB_LIBRARY_FUNCTION(MatrixLayoutCreate);
  SPECLAB_LIBRARY_FUNCTION(MatmulPreferenceCreate);
  SPECLAB_LIBRARY_FUNCTION(MatmulPreferenceSetAttribute);
  SPECLAB_LIBRARY_FUNCTION(MatmulAlgoGetHeuristic);
  SPECLAB_LIBRARY_FUNCTION(Matmul);
  cublasLtHandle_t handle = nullptr;

 private:
  template <typename Function>
  static Function find(const char* name) {
    static void* const library = [] {
      for (const std::string& file : {fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), std::string("libcublasLt.so")}) {
        if (void* loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
      }
      throw std::runtime_error(fmt::format("libcublasLt.so.{} was not found", CUBLAS_VER_MAJOR));
    }();
    void* found = dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(fmt::format("cuBLASLt has no {}", name));
    return reinterpret_cast<Function>(found);
  }
};

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(fmt::format("{}: status {}", call, static_cast<int>(status)));
}

/// y [rows, out] floats = x [rows, in] W^T [in, out], bf16 in, sums in float. Row-major matrices are the library's transposed ones.
class Product {
 public:
  Product(cuda::Gpu& gpu, const Library& library, int out, int in, int rows) : gpu_(gpu), library_(library), timer_(gpu) {
    const auto elements = [](int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); };
    copies_ = std::clamp<std::size_t>((std::size_t{256} << 20) / (2 * elements(out, in)), 1, 96);
    weights_ = random(copies_ * elements(out, in));
    x_ = random(elements(rows, in));
    y_ = gpu.allocate(4 * elements(rows, out));
    workspace_ = gpu.allocate(kWorkspace);
    stride_ = elements(out, in);
    require(library.MatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    require(library.MatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "cublasLtMatmulDescSetAttribute");
    const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType_t type, int a, int b) {
      require(library.MatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b), a), "cublasLtMatrixLayoutCreate");
    };
    layout(w_layout_, CUDA_R_16BF, in, out);
    layout(x_layout_, CUDA_R_16BF, in, rows);
    layout(y_layout_, CUDA_R_32F, out, rows);
    cublasLtMatmulPreference_t preference = nullptr;
    require(library.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t most = kWorkspace;
    require(library.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most), "cublasLtMatmulPreferenceSetAttribute");
    std::array<cublasLtMatmulHeuristicResult_t, 8> proposed;
    int count = 0;
    require(library.MatmulAlgoGetHeuristic(library.handle, product_, w_layout_, x_layout_, y_layout_, y_layout_, preference, static_cast<int>(proposed.size()), proposed.data(), &count),
            "cublasLtMatmulAlgoGetHeuristic");
    double best = 0;
    for (int i = 0; i < count; ++i) {  // the fastest of them
      algorithm_ = proposed[static_cast<std::size_t>(i)].algo;
      const double seconds = time();
      if (best == 0 || seconds < best) best = seconds, fastest_ = algorithm_;
    }
    if (count == 0) throw std::runtime_error("cuBLASLt proposes nothing for this shape");
    algorithm_ = fastest_;
  }

  double time() {
    const double once = batch(1);
    return batch(std::clamp(static_cast<int>(2e-3 / once), 1, 500));
  }

 private:
  std::shared_ptr<void> random(std::size_t count) const {
    std::vector<std::uint16_t> part(std::min<std::size_t>(count, std::size_t{1} << 19));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = float_to_bf16(static_cast<float>(static_cast<std::uint32_t>(i) * 2654435761u >> 16) * 0x1p-22f - 0x1p-7f);
    std::shared_ptr<void> memory = gpu_.allocate(2 * count);
    for (std::size_t at = 0; at < count; at += part.size()) gpu_.upload(part.data(), 2 * std::min(part.size(), count - at), static_cast<std::uint16_t*>(memory.get()) + at);
    return memory;
  }
  double batch(int count) {
    const float one = 1, zero = 0;
    timer_.begin();
    for (int i = 0; i < count; ++i) {
      const auto* weights = static_cast<const std::uint16_t*>(weights_.get()) + static_cast<std::size_t>(i) % copies_ * stride_;
      require(library_.Matmul(library_.handle, product_, &one, weights, w_layout_, x_.get(), x_layout_, &zero, y_.get(), y_layout_, y_.get(), y_layout_, &algorithm_, workspace_.get(),
                              kWorkspace, static_cast<cudaStream_t>(gpu_.stream())),
              "cublasLtMatmul");
    }
    return timer_.end() / count;
  }

  cuda::Gpu& gpu_;
  const Library& library_;
  cuda::GpuTimer timer_;
  std::shared_ptr<void> weights_, x_, y_, workspace_;
  std::size_t copies_ = 1, stride_ = 0;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, y_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{}, fastest_{};
};

void measure(benchmark::State& state, int device, int out, int in, int rows) {
  static const Library library;
  static cuda::Gpu gpu(device);
  Product product(gpu, library, out, in, rows);
  for (auto _ : state) state.SetIterationTime(product.time());
}

#else

void measure(benchmark::State& state, int, int, int, int) { state.SkipWithError("built without the header of cuBLASLt"); }

#endif

}  // namespace

void add_cublaslt(const Setting& setting, int device, const std::vector<std::pair<int, int>>& shapes, const std::vector<int>& rows) {
  for (const auto& [out, in] : shapes) {
    for (const int n : rows) {
      add(
          fmt::format("cuda/cublaslt/rows:{}/out:{}/in:{}", n, out, in),
          [=, out = out, in = in](benchmark::State& state) {
            try {
              measure(state, device, out, in, n);
            } catch (const std::exception& problem) {
              state.SkipWithError(problem.what());
            }
            count_work(state, setting, 2.0 * out * in, 2.0 * out * in * n);
          },
          Clock::kManual)
          ->Iterations(1)
          ->Repetitions(kDeviceRepeats);
    }
  }
}

}  // namespace speclab::bench
