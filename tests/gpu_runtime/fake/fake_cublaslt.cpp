// Stands in for cuBLASLt. It counts the handles that exist and lets a call fail, and it multiplies nothing.
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

extern "C" {

int fake_cublaslt_handles = 0;        // descriptors, layouts and preferences that were not destroyed
int fake_cublaslt_calls_to_fail = 0;  // the call with this number fails, counted down; 0: none does
}

namespace {

bool fails() { return fake_cublaslt_calls_to_fail > 0 && --fake_cublaslt_calls_to_fail == 0; }

template <typename Handle>
cublasStatus_t make(Handle* handle) {
  if (fails()) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = reinterpret_cast<Handle>(static_cast<std::size_t>(++fake_cublaslt_handles));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Handle>
cublasStatus_t destroy(Handle handle) {
  if (handle != nullptr) --fake_cublaslt_handles;
  return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t set() { return fails() ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS; }

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return make(made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) { return destroy(made); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, std::size_t) {
  return set();
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType, std::uint64_t,
                                          std::uint64_t, std::int64_t) {
  return make(made);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t made) { return destroy(made); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) { return make(made); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) { return destroy(made); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    std::size_t) {
  return set();
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t[], int* count) {
  *count = fails() ? 0 : 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}
}
