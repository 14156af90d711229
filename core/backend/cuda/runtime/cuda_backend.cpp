#include "core/backend/cuda/runtime/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/base/cpu_topology.h"
#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab {
namespace cuda {
namespace {

std::unique_ptr<Device> open_device(const CudaBackendOptions& options) {
  if (options.simulated) return make_simulated_device();
  return std::make_unique<Gpu>(options.device);
}

int planes(const KvStore& kv) { return 2 * kv.layers * kv.kv_heads; }

KvLayer layer_of(const KvStore& kv, int layer) {
  KvLayer of{nullptr, kv.slots, kv_stride(kv.head_dim)};
  of.data = static_cast<Bf16*>(kv.data.get()) +
            2 * static_cast<std::size_t>(layer) * static_cast<std::size_t>(kv.kv_heads) * of.plane();
  return of;
}

/// A timer of a backend's operations. begin() and stop() first launch the operations that are held back
/// (Launcher::start()). So the timer counts just the operations that are started between these two calls.
class BackendTimer final : public DeviceTimer {
 public:
  BackendTimer(Launcher& launcher, std::unique_ptr<DeviceTimer> timer)
      : launcher_(launcher), timer_(std::move(timer)) {}
  ~BackendTimer() override { launcher_.stop_noting(kernels_); }
  BackendTimer(const BackendTimer&) = delete;
  BackendTimer& operator=(const BackendTimer&) = delete;
  void begin() override {
    launcher_.submit();
    kernels_.clear();
    launcher_.note_into(&kernels_);
    timer_->begin();
    launcher_.separate();
  }
  void stop() override {
    launcher_.submit();
    timer_->stop();
    launcher_.separate();
    launcher_.stop_noting(kernels_);
  }
  double seconds() override { return timer_->seconds(); }
  const std::vector<std::string_view>& kernels() const override { return kernels_; }

 private:
  Launcher& launcher_;
  std::unique_ptr<DeviceTimer> timer_;
  std::vector<std::string_view> kernels_;
};

}  // namespace

CudaBackend::CudaBackend(const CudaBackendOptions& options, CudaKernels kernels)
    : device_(open_device(options)),
      name_(device_->backend_name()),
      class_(device_->numerics_class() + (options.cublaslt ? "-cublaslt" : "")),
      description_(device_->description()),
      launcher_(*device_, kernels),
      program_(*this, *device_, launcher_,
               [this] {
                 return CudaProgram::Memory{activations_.memory(), activated_.memory(), partials_.memory(),
                                            arrivals_.memory()};
               }),
      status_(device_->make_status()),
      pool_(options.simulated     ? 1
            : options.threads > 0 ? options.threads
                                  : usable_threads()) {
  if (!options.cublaslt) return;
  if (auto* gpu = dynamic_cast<Gpu*>(device_.get())) library_ = std::make_unique<CublasLt>(*gpu);
  prompt_rows_ = options.simulated ? PromptRows{17, 32} : PromptRows{kMostRows + 1, 2048};
}

template <typename Arguments, typename T>
double CudaBackend::seconds(int times, const char* kernel, const Arguments& arguments, const Buffer<T>& out) {
  T one;
  download(out.data(), sizeof one, &one);  // waits until earlier work is done
  const std::int64_t begun = wall_now_ns();
  for (int i = 0; i < times; ++i) start(kernel, arguments);
  download(out.data(), sizeof one, &one);
  return 1e-9 * static_cast<double>(wall_now_ns() - begun);
}

DeviceSpeed CudaBackend::measure_speed() {
  // On the simulated GPU this measures the simulation, at sizes that take little time.
  const bool simulated = device_->simulated();
  constexpr int kTimes = 8;
  const int blocks = simulated ? 1 : 4 * 132;
  Buffer<simt::u32> read = allocate_buffer<simt::u32>(static_cast<std::size_t>(blocks) * kSpeedThreads);
  Buffer<float> sums = allocate_buffer<float>(read.size());
  const std::size_t bytes = simulated ? std::size_t{64} << 10 : std::size_t{1} << 30;
  Buffer<simt::u32> data = allocate_buffer<simt::u32>(bytes / sizeof(simt::u32));
  const ReadAll reading{data.data(), bytes / 16, blocks, read.data()};
  const MultiplyAll products{simulated ? 4 : 4096, blocks, sums.data()};
  DeviceSpeed speed;
  for (int pass = 0; pass < 5; ++pass) {
    speed.read_bytes_per_second =
        std::max(speed.read_bytes_per_second,
                 kTimes * static_cast<double>(bytes) / seconds(kTimes, "read_all", reading, read));
    speed.peak_flops = std::max(
        speed.peak_flops, kTimes * operations_of(products) / seconds(kTimes, "multiply_all", products, sums));
  }
  return speed;
}

std::unique_ptr<DeviceTimer> CudaBackend::make_timer() {
  return std::make_unique<BackendTimer>(launcher_, device_->make_timer());
}

// First launches the operations that are held back (Launcher::start()). They may use older memory, which the
// caller is about to release by putting the new memory in its place.
std::shared_ptr<void> CudaBackend::allocate(std::size_t bytes) {
  submit();
  return device_->allocate(bytes);
}
void CudaBackend::upload(const void* host, std::size_t bytes, void* to) {
  SPECLAB_CHECK(!launcher_.recording(), "an upload of {} bytes in a recording", bytes);
  submit();
  device_->upload(host, bytes, to);
  launcher_.separate();
}
void CudaBackend::download(const void* from, std::size_t bytes, void* host) {
  SPECLAB_CHECK(!launcher_.recording(), "a download of {} bytes in a recording", bytes);
  submit();
  device_->download(from, bytes, host);
  launcher_.separate();
}

PackedMatrix CudaBackend::pack(int out, int in, const std::function<void(int, int, Bf16*)>& read) {
  constexpr std::size_t kChunk = std::size_t{32} << 20;  // bytes of rows per upload
  PackedMatrix matrix{out, in, nullptr, weight_elements(out, in) * sizeof(Bf16)};
  matrix.data = allocate(matrix.bytes);
  reserve(out, in);
  const auto row = static_cast<std::size_t>(in) * sizeof(Bf16);
  const int most =
      static_cast<int>(std::clamp<std::size_t>(kChunk / row, kTileOut, 1 << 20)) / kTileOut * kTileOut;
  const int together = std::min(out, most);
  const std::size_t numbers = static_cast<std::size_t>(together) * static_cast<std::size_t>(in);
  if (rows_bytes_ < numbers * sizeof(Bf16)) {
    rows_ = nullptr;  // frees the smaller buffer first
    rows_ = device_->allocate_shared(numbers * sizeof(Bf16));
    rows_bytes_ = numbers * sizeof(Bf16);
  }
  Bf16* const rows = static_cast<Bf16*>(rows_.get());
  Buffer<Bf16> there = allocate_buffer<Bf16>(numbers);
  for (int first = 0; first < out; first += together) {
    const int count = std::min(together, out - first), tiles = tiles_of(count, kTileOut);
    std::vector<std::exception_ptr> failed(static_cast<std::size_t>(pool_.threads()));
    pool_.parallel(tiles, [&](int tile, int thread) {
      try {
        const int begin = tile * kTileOut;
        read(first + begin, first + std::min(begin + kTileOut, count),
             rows + static_cast<std::size_t>(begin) * static_cast<std::size_t>(in));
      } catch (...) {
        failed[static_cast<std::size_t>(thread)] = std::current_exception();
      }
    });
    for (const auto& error : failed) {
      if (error) std::rethrow_exception(error);
    }
    upload(rows, static_cast<std::size_t>(count) * row, there.data());
    start("pack_weights",
          PackWeights{there.data(), first, count, out, in, static_cast<Bf16*>(matrix.data.get())});
  }
  return matrix;
}

KvStore CudaBackend::allocate_kv(int layers, int kv_heads, int head_dim, int slots) {
  constexpr int kMostHeadDim = kSplit * kKvPiece;  // 1024; the queries of one attention tile then take 64 KiB
  if (head_dim > kMostHeadDim)
    throw Error({"dimensions of a head", std::to_string(head_dim),
                 fmt::format("at most {} on a GPU", kMostHeadDim), "Use --backend cpu."});
  KvStore kv{layers, kv_heads, head_dim, slots, 0, nullptr, 0};
  kv.bytes_per_position = 2 * sizeof(Bf16) * static_cast<std::uint64_t>(layers) *
                          static_cast<std::uint64_t>(kv_heads) *
                          static_cast<std::uint64_t>(kv_stride(head_dim));
  if (__builtin_mul_overflow(kv.bytes_per_position, static_cast<std::uint64_t>(slots), &kv.bytes))
    kv.bytes = UINT64_MAX;
  kv.data = allocate(kv.bytes);
  return kv;
}

void CudaBackend::copy_kv(const KvStore& from, int slots, KvStore& to) {
  SPECLAB_CHECK(slots <= std::min(from.slots, to.slots) && from.layers == to.layers &&
                    from.kv_heads == to.kv_heads && from.head_dim == to.head_dim,
                "{} slots of {} into {}", slots, from.slots, to.slots);
  if (slots == 0) return;
  start("copy_kv", CopyKv{static_cast<const Bf16*>(from.data.get()), static_cast<Bf16*>(to.data.get()),
                          planes(from), from.slots, to.slots, kv_stride(from.head_dim), slots});
}

void CudaBackend::move_slots(KvStore& kv, std::span<const std::int32_t> from,
                             std::span<const std::int32_t> to) {
  SPECLAB_CHECK(from.size() == to.size(), "{} slots to {}", from.size(), to.size());
  if (from.empty()) return;
  moves_.assign(from.begin(), from.end());
  moves_.insert(moves_.end(), to.begin(), to.end());
  const std::int32_t* moves = stage(moves_, staged_moves_);
  start("move_slots",
        MoveSlots{static_cast<Bf16*>(kv.data.get()), planes(kv), kv.slots, kv_stride(kv.head_dim), moves,
                  moves + from.size(), static_cast<int>(from.size())});
}

void CudaBackend::rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) {
  Norm norm = norm_of(NormOf::kRms, x, weight, eps, n, d);
  norm.x_stride = norm.out_stride = d;
  norm.out = out;
  if (n > 0) start("rms_norm", norm);
}

void CudaBackend::layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d,
                             float* out) {
  Norm norm = norm_of(NormOf::kLayer, x, weight, eps, n, d);
  norm.x_stride = norm.out_stride = d;
  norm.bias = bias;
  norm.out = out;
  if (n > 0) start("layer_norm", norm);
}

void CudaBackend::rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n,
                                 int d) {
  Norm norm = norm_of(NormOf::kRms, x, weight, eps, n, d);
  norm.x_stride = norm.out_stride = stride;
  norm.heads = heads;
  norm.out = x;
  if (n > 0) start("rms_norm", norm);
}

void CudaBackend::rope_and_store(float* qkv, int heads, const Rotation& rotation, const RowsInFlight& rows,
                                 KvStore& kv, int layer) {
  if (rows.n == 0) return;
  start("rope_and_store", RopeStore{qkv, rows.n, heads, kv.kv_heads, kv.head_dim, rotation.cos, rotation.sin,
                                    rotation.dims / 2, rows.positions, rows.slots, layer_of(kv, layer)});
}

void CudaBackend::attend(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                         const AttentionForm& form, float* out, simt::u16* activations) {
  Attention a;
  a.qkv = qkv;
  a.n = rows.n;
  a.heads = heads;
  a.kv_heads = kv.kv_heads;
  a.head_dim = kv.head_dim;
  a.kv = layer_of(kv, layer);
  a.committed = rows.committed;
  a.earlier = rows.earlier;
  a.committed_at = rows.committed_at;
  a.positions = rows.positions;
  a.path_begin = rows.path_begin;
  a.paths = rows.paths;
  a.scale = form.scale > 0 ? form.scale : 1.0f / std::sqrt(static_cast<float>(kv.head_dim));
  a.soft_cap = form.soft_cap;
  a.window = form.window;
  a.out = out;
  a.activations = activations;
  if (rows.view != nullptr) return attend_view(a, rows);
  if (launcher_.gathers() && rows.committed_at == nullptr && rows.committed_copy != nullptr) {
    // The arguments, and so the table of a persistent kernel, stay the same until the sequence reaches the
    // next split (kSplit positions). Until then no new table is uploaded.
    a.committed_at = rows.committed_copy;
    a.committed = rows.committed / kSplit * kSplit + kSplit - 1;
  }
  a.sums = room(sums_, a.sums_size());
  a.mixed = room(mixed_, a.mixed_size());
  start("attention_splits", AttentionSplits{a});
  start("attention_sum", AttentionSum{a});
}

void CudaBackend::attend_view(const Attention& all, const RowsInFlight& rows) {
  SPECLAB_CHECK(rows.committed_at == nullptr, "a view of {} keys cannot be combined with committed_at",
                rows.view->count);
  AttentionView a{all, rows.view->slots, rows.view->first};
  a.committed = rows.view->count;
  a.positions = rows.view->ranks;
  a.window = 0;
  a.sums = room(sums_, a.sums_size());
  a.mixed = room(mixed_, a.mixed_size());
  start("attention_splits", AttentionViewSplits{a});
  start("attention_sum", AttentionViewSum{a});
}

void CudaBackend::gather(const PackedMatrix& table, const Token* tokens, int n, float* out) {
  if (n > 0) start("gather", Gather{static_cast<const Bf16*>(table.data.get()), table.in, tokens, n, out});
}
void CudaBackend::attention(const float* qkv, int heads, const KvStore& kv, int layer,
                            const RowsInFlight& rows, float* out, const AttentionForm& form) {
  if (rows.n > 0) attend(qkv, heads, kv, layer, rows, form, out, nullptr);
}
void CudaBackend::activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) {
  if (n > 0) start("activate", Activate{f, gated, x, n, ffn, out, nullptr});
}
void CudaBackend::elementwise(ElementwiseOf operation, const float* x, float factor, int rows, int width,
                              float* y) {
  if (rows > 0) start("elementwise", Elementwise{operation, y, x, factor, rows, width});
}
void CudaBackend::add_bias(const float* x, int n, int d, float* y) {
  elementwise(ElementwiseOf::kAddBias, x, 1, n, d, y);
}
void CudaBackend::add(const float* x, int n, int d, float* y) {
  elementwise(ElementwiseOf::kAdd, x, 1, n, d, y);
}
void CudaBackend::scale(float factor, int n, int d, float* x) {
  elementwise(ElementwiseOf::kScale, nullptr, factor, n, d, x);
}
void CudaBackend::soft_cap(float cap, int n, int d, float* x) {
  elementwise(ElementwiseOf::kSoftCap, nullptr, cap, n, d, x);
}
void CudaBackend::copy_rows(const float* x, const std::int32_t* rows, int n, int d, float* out) {
  if (n > 0) start("copy_rows", CopyRows{x, rows, n, d, out});
}
void CudaBackend::fill_columns(float value, int begin, int n, int d, float* x) {
  if (n > 0 && begin < d) start("fill_columns", FillColumns{x, n, d, begin, value});
}

}  // namespace cuda

std::string gpu_absent() { return cuda::gpu_absent(); }

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return make_cuda_backend(options, CudaKernels::kLaunches);
}

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels kernels) {
  return std::make_shared<cuda::CudaBackend>(options, kernels);
}

}  // namespace speclab
