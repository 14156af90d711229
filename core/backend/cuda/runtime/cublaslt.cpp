#include "core/backend/cuda/runtime/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#if defined(SPECLAB_CUBLASLT)
#include <cublasLt.h>
#endif

#include "core/base/bf16.h"
#include "core/base/error.h"

namespace speclab::cuda {

void plain_product(const PlainProduct& a) {
  const auto at = [](int row, int width) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
  };
  for (int row = 0; row < a.rows; ++row) {
    for (int m = 0; m < a.out; ++m) {
      float sum = 0;
      for (int k = a.in - 1; k >= 0; --k)
        sum +=
            bf16_to_float(a.x[at(row, a.in) + at(k, 1)]) * bf16_to_float(a.weights[at(m, a.in) + at(k, 1)]);
      float& y = a.y[at(row, a.out) + at(m, 1)];
      y = a.accumulate ? y + sum : sum;
    }
  }
}

namespace {

[[noreturn]] void fail_library(const std::string& got, const std::string& expected) {
  throw Error({"cuBLASLt", got, expected, "--prefill own needs no library."});
}

}  // namespace

void* load_library(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (void* loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
  }
  fail_library(fmt::format("no {} in the folders that the loader searches", fmt::join(files, " and no ")),
               "the library of a CUDA toolkit; set LD_LIBRARY_PATH to its folder");
}

#if defined(SPECLAB_CUBLASLT)

void* load_cublaslt() {
  return load_library({fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "libcublasLt.so"});
}

namespace {

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail_library(fmt::format("{}: status {}", call, static_cast<int>(status)), "success");
}

}  // namespace

#define SPECLAB_LIBRARY_FUNCTION(name) \
  decltype(&::cublasLt##name) name = find<decltype(&::cublasLt##name)>("cublasLt" #name)

struct CublasLt::Library {
  void* const loaded = load_cublaslt();
  SPECLAB_LIBRARY_FUNCTION(Create);
  SPECLAB_LIBRARY_FUNCTION(Destroy);
  SPECLAB_LIBRARY_FUNCTION(MatmulDescCreate);
  SPECLAB_LIBRARY_FUNCTION(MatmulDescDestroy);
  SPECLAB_LIBRARY_FUNCTION(MatmulDescSetAttribute);
  SPECLAB_LIBRARY_FUNCTION(MatrixLayoutCreate);
  SPECLAB_LIBRARY_FUNCTION(MatrixLayoutDestroy);
  SPECLAB_LIBRARY_FUNCTION(MatmulPreferenceCreate);
  SPECLAB_LIBRARY_FUNCTION(MatmulPreferenceDestroy);
  SPECLAB_LIBRARY_FUNCTION(MatmulPreferenceSetAttribute);
  SPECLAB_LIBRARY_FUNCTION(MatmulAlgoGetHeuristic);
  SPECLAB_LIBRARY_FUNCTION(Matmul);
  cublasLtHandle_t handle = nullptr;

  template <typename Function>
  Function find(const char* name) const {
    void* found = dlsym(loaded, name);
    if (found == nullptr)
      fail_library(fmt::format("a library without {}", name),
                   "the library of the toolkit that this program was built with");
    return reinterpret_cast<Function>(found);
  }
};

// The library stores matrices by columns, so a row-major matrix [a, b] of ours is a matrix [b, a] for the
// library.
struct CublasLt::Shape {
  explicit Shape(const Library& library) : library(library) {}
  // If this constructor throws, the destructor still runs, because the constructor to which it delegates has
  // finished. So all handles are destroyed.
  Shape(const Library& library, int out, int in, int rows) : Shape(library) {
    require(library.MatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    require(
        library.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        "cublasLtMatmulDescSetAttribute");
    const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType_t type, int a, int b) {
      require(library.MatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(a),
                                         static_cast<std::uint64_t>(b), a),
              "cublasLtMatrixLayoutCreate");
    };
    layout(weights, CUDA_R_16BF, in, out);
    layout(x, CUDA_R_16BF, in, rows);
    layout(y, CUDA_R_32F, out, rows);
    require(library.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t most = kWorkspace;
    const std::uint32_t aligned = 16;
    require(library.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                                 sizeof most),
            "cublasLtMatmulPreferenceSetAttribute");
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      require(library.MatmulPreferenceSetAttribute(preference, operand, &aligned, sizeof aligned),
              "cublasLtMatmulPreferenceSetAttribute");
    }
    proposed.resize(8);
    int count = 0;
    const cublasStatus_t status =
        library.MatmulAlgoGetHeuristic(library.handle, product, weights, x, y, y, preference,
                                       static_cast<int>(proposed.size()), proposed.data(), &count);
    proposed.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    if (proposed.empty())
      fail_library(
          fmt::format("no algorithm for the product of {} input rows and a weight matrix {} x {}: status {}",
                      rows, out, in, static_cast<int>(status)),
          "at least one algorithm");
  }
  ~Shape() {
    for (const cublasLtMatrixLayout_t layout : {weights, x, y}) {
      if (layout != nullptr) library.MatrixLayoutDestroy(layout);
    }
    if (preference != nullptr) library.MatmulPreferenceDestroy(preference);
    if (product != nullptr) library.MatmulDescDestroy(product);
  }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  const Library& library;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;  // what the proposed algorithms must satisfy
  cublasLtMatrixLayout_t weights = nullptr, x = nullptr, y = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> proposed;
  std::size_t chosen = 0;
};

CublasLt::CublasLt(Gpu& gpu)
    : gpu_(gpu), library_(std::make_unique<Library>()), workspace_(gpu.allocate(kWorkspace)) {
  require(library_->Create(&library_->handle), "cublasLtCreate");
}
CublasLt::~CublasLt() {
  shapes_.clear();
  library_->Destroy(library_->handle);
}

CublasLt::Shape& CublasLt::shape_of(int out, int in, int rows) {
  std::unique_ptr<Shape>& shape = shapes_[{out, in, rows}];
  if (!shape) shape = std::make_unique<Shape>(*library_, out, in, rows);
  return *shape;
}

void CublasLt::product(const PlainProduct& a) {
  const Shape& shape = shape_of(a.out, a.in, a.rows);
  const float one = 1, kept = a.accumulate ? 1 : 0;
  gpu_.started("cublasLtMatmul");
  require(library_->Matmul(library_->handle, shape.product, &one, a.weights, shape.weights, a.x, shape.x,
                           &kept, a.y, shape.y, a.y, shape.y, &shape.proposed[shape.chosen].algo,
                           workspace_.get(), kWorkspace, static_cast<cudaStream_t>(gpu_.stream().device)),
          "cublasLtMatmul");
}

int CublasLt::proposals(int out, int in, int rows) {
  return static_cast<int>(shape_of(out, in, rows).proposed.size());
}
void CublasLt::choose(int out, int in, int rows, int which) {
  shape_of(out, in, rows).chosen = static_cast<std::size_t>(which);
}

#else

void* load_cublaslt() {
  fail_library("a program that was built without the header cublasLt.h",
               "one that was built with the CUDA toolkit");
}

struct CublasLt::Library {};
struct CublasLt::Shape {};
CublasLt::CublasLt(Gpu& gpu) : gpu_(gpu) { load_cublaslt(); }
CublasLt::~CublasLt() = default;
void CublasLt::product(const PlainProduct&) { load_cublaslt(); }
int CublasLt::proposals(int, int, int) {
  load_cublaslt();
  return 0;
}
void CublasLt::choose(int, int, int, int) { load_cublaslt(); }

#endif

}  // namespace speclab::cuda
