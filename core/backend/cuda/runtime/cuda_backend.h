#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cuda/launch/launcher.h"
#include "core/backend/cuda/program/cuda_program.h"
#include "core/backend/cuda/runtime/cublaslt.h"
#include "core/backend/cuda/runtime/device.h"
#include "core/backend/device_status.h"
#include "core/base/thread_pool.h"

namespace speclab::cuda {

/// Implements the backends "cuda" and "host-simt". Operations run as kernels that are launched in one stream
/// of a device. Linear layers are in cuda_products.cpp, the rest is in cuda_backend.cpp.
class CudaBackend : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, CudaKernels kernels);

  std::string_view name() const override { return name_; }
  std::string_view numerics_class() const override { return class_; }
  std::string_view device_name() const override { return description_; }
  int threads() const override { return pool_.threads(); }
  int kv_number_bytes() const override { return sizeof(Bf16); }
  bool simulated() const override { return device_->simulated(); }
  DeviceSpeed measure_speed() override;
  DeviceProgram* device_program() override { return &program_; }
  DeviceStatus* device_status() override { return status_.get(); }
  std::unique_ptr<DeviceTimer> make_timer() override;

  bool host_memory() const override { return false; }
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  void upload(const void* host, std::size_t bytes, void* to) override;
  void download(const void* from, std::size_t bytes, void* host) override;
  bool idle() override { return launcher_.idle(); }
  void give_up() override { device_->give_up(); }
  void submit() override { launcher_.submit(); }
  const Launcher& launcher() const { return launcher_; }

  PackedMatrix pack(int out, int in, const std::function<void(int, int, Bf16*)>& read) override;
  KvStore allocate_kv(int layers, int kv_heads, int head_dim, int slots) override;
  void copy_kv(const KvStore& from, int slots, KvStore& to) override;
  void move_slots(KvStore& kv, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override;

  void linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) override;
  PromptRows prompt_rows() const override { return prompt_rows_; }
  void prompt_linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) override;
  void norm_linear(const NormForm& form, const float* x, const PackedMatrix& w, int n, float* scratch,
                   float* y) override;
  void feed_forward(const NormForm& norm, const float* x, const FeedForward& form, int n, float* normed,
                    float* raised, float* activated, float* y, bool accumulate) override;
  void activate_linear(Activation f, bool gated, const float* x, const PackedMatrix& w, int n, float* scratch,
                       float* y, bool accumulate) override;
  void attention_linear(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                        const AttentionForm& form, const PackedMatrix& w, float* scratch, float* y,
                        bool accumulate) override;

  void gather(const PackedMatrix& table, const Token* tokens, int n, float* out) override;
  void rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) override;
  void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d,
                  float* out) override;
  void rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n, int d) override;
  void rope_and_store(float* qkv, int heads, const Rotation& rotation, const RowsInFlight& rows, KvStore& kv,
                      int layer) override;
  void attention(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                 float* out, const AttentionForm& form) override;
  void silu_multiply(const float* gate_up, int n, int ffn, float* out) override {
    activate(Activation::kSilu, true, gate_up, n, ffn, out);
  }
  void activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) override;
  void add_bias(const float* x, int n, int d, float* y) override;
  void add(const float* x, int n, int d, float* y) override;
  void scale(float factor, int n, int d, float* x) override;
  void soft_cap(float cap, int n, int d, float* x) override;
  void copy_rows(const float* x, const std::int32_t* rows, int n, int d, float* out) override;
  void fill_columns(float value, int begin, int n, int d, float* x) override;

 protected:
  void keep_for_graph(const std::shared_ptr<void>& memory) override { launcher_.keep(memory); }

 private:
  template <typename Arguments>
  void start(const char* kernel, const Arguments& arguments) {
    launcher_.start(kernel, arguments);
  }
  void attend(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
              const AttentionForm& form, float* out, simt::u16* activations);
  void attend_view(const Attention& all, const RowsInFlight& rows);
  NormedRow round_norm(const NormForm& form, const float* x, int rows, int width);
  Linear linear_of(const PackedMatrix& w, int rows) const;
  void product(const PackedMatrix& w, int rows, float* y, bool accumulate, const NormedRow& norm = {});
  void reserve(int out, int in);
  void elementwise(ElementwiseOf operation, const float* x, float factor, int rows, int width, float* y);
  template <typename Arguments, typename T>
  double seconds(int times, const char* kernel, const Arguments& arguments, const Buffer<T>& out);

  std::unique_ptr<Device> device_;
  std::string name_, class_, description_;
  Launcher launcher_;
  CudaProgram program_;
  std::unique_ptr<DeviceStatus> status_;
  std::unique_ptr<CublasLt> library_;  // null without cublaslt and on a simulated GPU
  // The numbers of rows for which prompt_linear() is used. prompt_linear() is faster than linear() only for
  // many rows, because it must unpack the weights first. So each matrix moves through memory three times
  // (read packed, written unpacked, read by the product), while linear() reads it once per kMostRows rows.
  // With too many rows per call, the activations would be large compared with the weights.
  PromptRows prompt_rows_;
  ThreadPool pool_;  // its threads read weights
  // Pinned memory for rows of weights on their way to the device. A GPU copies from pinned memory several
  // times faster than from pageable memory. The buffer is kept, because the driver takes milliseconds to
  // allocate pinned memory.
  std::shared_ptr<void> rows_;
  std::size_t rows_bytes_ = 0;
  Buffer<simt::u16> activations_;            // input of a linear layer, rounded
  Buffer<simt::u16> activated_;              // gated activations, rounded: input of the layer after the gate
  Buffer<float> partials_;                   // sums of the slices of a linear layer
  Buffer<simt::u32> arrivals_;               // counters of finished slices, zero between products
  Buffer<simt::u16> plain_weights_, plain_;  // operands of prompt_linear()
  Buffer<float> sums_, mixed_;               // results of the splits of an attention
  std::vector<std::int32_t> moves_;          // from, then to
  Buffer<std::int32_t> staged_moves_;
};

/// Returns the arguments of the norm kernel for rows of d numbers.
inline Norm norm_of(NormOf kind, const float* x, const float* weight, float eps, int rows, int d) {
  Norm norm;
  norm.kind = kind;
  norm.x = x;
  norm.weight = weight;
  norm.eps = eps;
  norm.rows = rows;
  norm.d = d;
  return norm;
}

}  // namespace speclab::cuda
