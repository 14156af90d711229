#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend/keys_in_view.h"
#include "core/base/bf16.h"
#include "core/base/token.h"

/// The interface between models and the hardware that computes them: memory, weights, KV caches, and the
/// operations of a forward. make_cpu_backend() and make_cuda_backend() make its implementations.
namespace speclab {

/// A matrix [out, in] of bf16 weights in the backend's own layout.
struct PackedMatrix {
  int out = 0;
  int in = 0;
  std::shared_ptr<void> data;
  std::uint64_t bytes = 0;
};

/// An array of numbers in the memory of a backend. Copies of a Buffer share the memory, and the last copy
/// releases it. Only operations of that backend may access the numbers; the host may do so only if
/// Backend::host_memory() is true.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<void> memory, T* data, std::size_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {}
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  std::shared_ptr<void> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The rows of one sequence in a forward, and the keys that each row attends to. Committed keys are those of
/// earlier tokens; the key of position j is in slot j. Row i attends to all committed keys and then to the
/// rows of its own path, in the order of their positions. The arrays are in memory of the backend.
struct RowsInFlight {
  int n = 0;
  int committed = 0;                        ///< number of committed keys, in slots [0, committed)
  const std::int32_t* positions = nullptr;  ///< [n], not below `committed`
  const std::int32_t* slots = nullptr;      ///< [n], slots for the keys and values of the rows
  const std::int32_t* path_begin =
      nullptr;  ///< [n + 1]: the path of row i is paths[j] for j in [path_begin[i], path_begin[i + 1])
  const std::int32_t* paths =
      nullptr;  ///< slots of the in-flight ancestors and of the row itself, by ascending position
  /// If not null, operations read the number of committed keys from this address in memory of the backend,
  /// and `committed` is an upper bound of it. So operations can be queued for a sequence whose length the
  /// host does not know yet.
  const std::int32_t* committed_at = nullptr;
  /// If not null, the address of a copy of `committed` in memory of the backend. `committed` itself is exact.
  /// A backend may read the number from this address, so that the work that it queues stays the same while
  /// the sequence grows. A forward that is recorded as a CUDA graph uses this address as `committed_at`.
  const std::int32_t* committed_copy = nullptr;
  /// Number of rows that earlier forwards added to the sequence and that are still in flight (neither
  /// committed nor dropped). Paths may contain them. Positions are below committed + earlier + n.
  int earlier = 0;
  /// The committed keys that attention reads; null: all. A view cannot be combined with committed_at. The
  /// KeysInView is in host memory. It is no longer needed when the call that queues an operation returns.
  const KeysInView* view = nullptr;
};

/// Tables of a rotary embedding. Dimensions i and i + dims/2 rotate together.
struct Rotation {
  const float* cos = nullptr;  ///< [positions, dims/2] in memory of the backend; null if dims is 0
  const float* sin = nullptr;
  int dims = 0;  ///< number of leading dimensions of a head that rotate, even; 0: none
};

/// Backend::linear_noting() notes one maximum per group of this many outputs of a linear layer.
inline constexpr int kMaximumOf = 64;
inline constexpr int maxima_of(int outputs) { return (outputs + kMaximumOf - 1) / kMaximumOf; }

class DeviceProgram;
class DeviceStatus;
class DeviceTimer;

/// How attention turns scores into weights.
struct AttentionForm {
  float scale = 0;     ///< factor of q . k; 0: 1 / sqrt(head_dim)
  float soft_cap = 0;  ///< scaled scores become cap * tanh(score / cap); 0: unchanged
  int window = 0;  ///< a row attends to its own position and the window - 1 positions before it; 0: to all
};

/// The kind of a norm and its parameters.
struct NormForm {
  bool layer = false;  ///< layer_norm() with a bias; otherwise rms_norm()
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
};

enum class Activation : std::uint8_t {
  kSilu,      ///< x / (1 + exp(-x))
  kGelu,      ///< x * Phi(x), with the error function (Hendrycks and Gimpel 2016)
  kGeluTanh,  ///< approximation of kGelu from the same paper: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kRelu,      ///< max(x, 0)
};

/// The two linear layers of a feed-forward block and the activation f between them: W_down f(W_up x + bias).
/// If gated, the outputs of W_up are two halves, `gate` and `up`, and the block computes W_down (f(gate) *
/// up).
struct FeedForward {
  const PackedMatrix* up = nullptr;  ///< when gated, the gate comes first
  const float* up_bias = nullptr;    ///< [up.out]; null: none
  Activation function = Activation::kSilu;
  bool gated = false;
  const PackedMatrix* down = nullptr;
};

/// KV cache of one sequence: the keys and values of all slots for each layer, in the backend's layout and
/// precision.
struct KvStore {
  int layers = 0, kv_heads = 0, head_dim = 0, slots = 0;
  std::uint64_t bytes_per_position = 0;  ///< keys and values of all layers
  std::shared_ptr<void> data;
  std::uint64_t bytes = 0;
};

/// Backend::prompt_linear() is used while at least `least` rows of a prompt remain to be fed, and takes
/// at most `most` rows per call.
struct PromptRows {
  int least = 0, most = 0;  ///< most = 0: prompt_linear() is not used
};

/// The speed limits of a device, measured with the kernels of this project.
struct DeviceSpeed {
  double read_bytes_per_second = 0;  ///< from memory, for data much larger than the caches
  double peak_flops = 0;  ///< operations per second of the arithmetic of linear layers, 2 per multiply-add
};

/// Computes the forwards of models on one device. Activations are row-major floats. Except in
/// prompt_linear(), the bits of a row do not depend on the number of rows or threads, because every operation
/// does the arithmetic of a row in an order that depends on neither. Pointers to numbers, also those inside
/// the structs above, point to memory of the backend. Only `host` and KeysInView are in host memory. Spans
/// are in host memory, too, and a call has read them when it returns. A call may return before its operation
/// is done. Queued operations run in order. To wait for them, call download().
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  ///< "cpu", "cuda", "host-simt"
  /// Name of the arithmetic: "f32", "f32-kv16", ... On one machine, results have the same bits within a
  /// class. Between two classes they may differ.
  virtual std::string_view numerics_class() const = 0;
  virtual std::string_view device_name() const = 0;
  virtual int threads() const = 0;
  /// Makes another backend for the same device and the same arithmetic, with `threads` threads of its own.
  /// Its operations may run while operations of this backend run, and it computes the same bits. Both read
  /// the same packed weights, and each can use the KV stores of the other. Null if the device cannot be
  /// divided in this way (the default).
  virtual std::shared_ptr<Backend> beside(int threads) const;
  /// Measures the speed limits of the device. Takes about half a second.
  virtual DeviceSpeed measure_speed() = 0;
  /// Bytes per number in the KV cache.
  virtual int kv_number_bytes() const = 0;

  /// True: the backend uses the memory of the host, and operations take any pointer of the process.
  virtual bool host_memory() const = 0;
  /// Allocates memory of the backend; its contents are undefined. Throws Error if there is not enough.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// upload() returns when the host may change `host` again. download() returns when `host` holds the data.
  virtual void upload(const void* host, std::size_t bytes, void* to) = 0;
  virtual void download(const void* from, std::size_t bytes, void* host) = 0;

  template <typename T>
  Buffer<T> allocate_buffer(std::size_t size) {
    auto memory = allocate(size * sizeof(T));
    T* data = static_cast<T*>(memory.get());
    return {std::move(memory), data, size};
  }
  /// Puts `numbers` into a buffer. If host_memory(), the buffer takes over the vector and nothing is copied.
  Buffer<float> keep(std::vector<float> numbers);
  /// Makes room for at least `size` numbers in `buffer`. If it has to grow, its contents are lost.
  template <typename T>
  T* room(Buffer<T>& buffer, std::size_t size) {
    if (buffer.size() < size) buffer = allocate_buffer<T>(size);
    keep_for_graph(buffer.memory());
    return buffer.data();
  }
  /// Makes numbers of the host usable for operations: returns the numbers themselves if host_memory(),
  /// otherwise a copy in `buffer`, which grows as needed.
  const std::int32_t* stage(std::span<const std::int32_t> numbers, Buffer<std::int32_t>& buffer);

  /// Packs a matrix. `read(begin, end, rows)` writes rows [begin, end) as bf16 [end-begin, in] in host
  /// memory; it is called from several threads.
  virtual PackedMatrix pack(int out, int in,
                            const std::function<void(int begin, int end, Bf16* rows)>& read) = 0;
  virtual KvStore allocate_kv(int layers, int kv_heads, int head_dim, int slots) = 0;
  /// Copies the first `slots` slots of every layer and head. Both stores belong to the same model and have at
  /// least this many slots. The contents of the later slots of `to` are undefined afterwards.
  virtual void copy_kv(const KvStore& from, int slots, KvStore& to) = 0;

  /// y[i] (+)= W x[i] for n rows: if `accumulate` is true, the product is added to y[i], otherwise it
  /// replaces y[i]. x [n, w.in], y [n, w.out]
  virtual void linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) = 0;
  /// y[i] = W x[i] with the bits of linear(). It also writes the maximum of each group of kMaximumOf outputs
  /// of a row to maxima [n, maxima_of(w.out)]. A search for the largest output then reads the maxima and one
  /// group instead of the whole row. The maximum of a group that contains NaN is undefined. Returns false and
  /// does nothing if the backend does not support it (the default).
  virtual bool linear_noting(const PackedMatrix& w, const float* x, int n, float* y, float* maxima);
  /// Says for which rows of a prompt the caller should use prompt_linear() instead of linear(). By
  /// default, the caller should use linear() for all rows.
  virtual PromptRows prompt_rows() const { return {}; }
  /// linear() for at most prompt_rows().most rows of a prompt. Its results are close to those of linear(),
  /// but the bits differ and depend on n.
  virtual void prompt_linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate);
  /// out[i] = row tokens[i] of a packed table, as floats. tokens [n], each below table.out; out [n, table.in]
  virtual void gather(const PackedMatrix& table, const Token* tokens, int n, float* out) = 0;
  /// out[i] = x[i] / rms(x[i]) * weight. [n, d]; out may be x.
  virtual void rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) = 0;
  /// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight + bias. [n, d]; out may be x.
  virtual void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d,
                          float* out) = 0;
  /// rms_norm() in place on every head of n rows. Row i begins at x + i * stride and has `heads` vectors of d
  /// numbers, one after the other. All have the same weight [d].
  virtual void rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n,
                              int d) = 0;
  /// Rotates every head of the q and k parts of qkv [n, (heads + 2 kv_heads) * head_dim] by the positions of
  /// the rows, and stores k and v in the slots of the rows in `layer`.
  virtual void rope_and_store(float* qkv, int heads, const Rotation& rotation, const RowsInFlight& rows,
                              KvStore& kv, int layer) = 0;
  /// Softmax attention of the query rows of qkv over the keys that `rows` and the window of `form` allow. out
  /// [n, heads * head_dim]
  virtual void attention(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                         float* out, const AttentionForm& form = {}) = 0;
  /// out[i] = silu(gate) * up; gate_up [n, 2 * ffn] (gate first). out [n, ffn]
  virtual void silu_multiply(const float* gate_up, int n, int ffn, float* out) = 0;
  /// out[i] = f(x[i]), or f(gate) * up when gated. x [n, ffn] or [n, 2 * ffn] (gate first), out [n, ffn]
  virtual void activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) = 0;
  /// y[i] += x for every row, with one vector x. y [n, d], x [d]
  virtual void add_bias(const float* x, int n, int d, float* y) = 0;
  /// y += x. [n, d]
  virtual void add(const float* x, int n, int d, float* y) = 0;
  /// x *= factor. [n, d]
  virtual void scale(float factor, int n, int d, float* x) = 0;
  /// x = cap * tanh(x / cap). [n, d]
  virtual void soft_cap(float cap, int n, int d, float* x) = 0;
  /// out[i] = x[rows[i]]. x [any, d], rows [n], out [n, d]
  virtual void copy_rows(const float* x, const std::int32_t* rows, int n, int d, float* out) = 0;
  /// x[i][j] = value for j in [begin, d). x [n, d]
  virtual void fill_columns(float value, int begin, int n, int d, float* x) = 0;

  // The next four functions fuse linear layers with the operations that compute their inputs. They give the
  // same bits as the separate operations. By default they call these operations one after the other. On a GPU
  // an operation writes its result directly in the layout that the linear layer after it reads. The contents
  // of `scratch` [n, w.in] are undefined afterwards.

  /// y = W norm(x)
  virtual void norm_linear(const NormForm& norm, const float* x, const PackedMatrix& w, int n, float* scratch,
                           float* y);
  /// y (+)= W activate(x)
  virtual void activate_linear(Activation f, bool gated, const float* x, const PackedMatrix& w, int n,
                               float* scratch, float* y, bool accumulate);
  /// y (+)= the output of the feed-forward block for the input norm(x), or for x if `norm` has no weight.
  /// Scratch, undefined afterwards: normed [n, up.in], raised [n, up.out], activated [n, down.in].
  virtual void feed_forward(const NormForm& norm, const float* x, const FeedForward& form, int n,
                            float* normed, float* raised, float* activated, float* y, bool accumulate);
  /// y (+)= W attention(qkv), for all rows of one sequence
  virtual void attention_linear(const float* qkv, int heads, const KvStore& kv, int layer,
                                const RowsInFlight& rows, const AttentionForm& form, const PackedMatrix& w,
                                float* scratch, float* y, bool accumulate);
  /// Copies the keys and values of slot from[j] to slot to[j] in all layers, for j in ascending order.
  /// from[j] >= to[j]
  virtual void move_slots(KvStore& kv, std::span<const std::int32_t> from,
                          std::span<const std::int32_t> to) = 0;

  /// Launches the operations that the backend has held back to batch them (core/backend/cuda_kernels.h). Call
  /// submit() before you release memory that queued operations use. download() calls it, too.
  virtual void submit();
  /// True when all queued operations are done. Launches nothing. Throws Error when the device has failed.
  virtual bool idle();
  /// Tells the backend that its device does not answer any more. From then on every operation throws Error,
  /// and nothing waits for the device. Its memory is not freed, because that would wait. The CPU backend does
  /// nothing here, because the CPU always answers.
  virtual void give_up() {}

  /// Runs whole decoding steps on the device (core/backend/device_program.h). Null if the device cannot do
  /// that. The backend owns the object.
  virtual DeviceProgram* device_program() { return nullptr; }
  /// Reads the clocks, the energy and the other users of the device (core/backend/device_status.h). Null if
  /// the backend can read none of them. The backend owns the object.
  virtual DeviceStatus* device_status() { return nullptr; }
  /// Makes a timer of the device's own clock (core/backend/device_timer.h). The backend must outlive it. Null
  /// on the CPU backend, because there the host's clock measures the same.
  virtual std::unique_ptr<DeviceTimer> make_timer();
  /// True if the device is simulated on the CPU. Then models must be small, and measured times mean nothing.
  virtual bool simulated() const { return false; }

 protected:
  /// room() calls this for memory that an operation is about to use. A CUDA graph that is being recorded
  /// keeps the memory.
  virtual void keep_for_graph(const std::shared_ptr<void>&) {}
};

struct CpuBackendOptions {
  int threads = 0;                ///< 0: every core that the affinity mask and the cgroup allow
  std::string numerics = "auto";  ///< "auto" (auto_cpu_numerics()), one of cpu_numerics_classes(),
                                  ///< "avx512-bf16-emulated" or "amx-bf16-emulated"
};
/// The numerics class that "auto" stands for on this CPU.
struct AutoNumerics {
  std::string numerics;  ///< "amx-bf16", "avx512-bf16" or "f32-kv16"
  /// A text for people. It says about each bf16 unit, up to the one that was chosen, whether this CPU has it
  /// and how its self-test ended (core/backend/cpu/unit_choice.h).
  std::string reason;
};
/// The first call tests the bf16 units that this CPU has, one after the other, until one passes. This takes
/// about 20 ms at most.
const AutoNumerics& auto_cpu_numerics();
/// The numerics classes that this CPU can compute, "f32" first.
std::vector<std::string> cpu_numerics_classes();
/// Makes the CPU backend. Throws Error for a CPU without AVX2 and FMA, for a thread count out of range, and
/// for a numerics class that is unknown or that this CPU cannot compute. The error about a class lists the
/// classes that this CPU can compute.
std::shared_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

struct CudaBackendOptions {
  int device = 0;   ///< the driver's number of the GPU
  int threads = 0;  ///< host threads that read weights; 0: every core that affinity mask and cgroup allow
  bool simulated = false;  ///< host-simt: the kernels run on the CPU, slowly, with strict checks
                           ///< (core/backend/cuda/kernels/simt.h)
  /// If true, computes long prompts with cuBLASLt (core/backend/cuda/runtime/cublaslt.h). cuBLASLt cannot
  /// read packed weights, so each matrix is unpacked before its product. The KV cache of such a prompt has
  /// other bits than the cache that decoding the same tokens would give. The simulated GPU uses a simple
  /// matrix product instead of the library.
  bool cublaslt = false;
};
/// Makes the backend "cuda" or, if simulated, "host-simt". The numerics class of "cuda" is cuda-sm80,
/// cuda-sm90, ...; with cublaslt it is cuda-sm80-cublaslt and so on. "host-simt" has a class of its own.
/// Activations are floats, inputs of linear layers are rounded to bf16, and keys and values are bf16. Throws
/// Error if the GPU is missing or cannot be used, if cuBLASLt is wanted but not found, or if the simulated
/// GPU is wanted but the program was built without it (SPECLAB_SIMULATOR).
std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options);
/// Why make_cuda_backend() finds no GPU: "no CUDA driver: ...", "no GPU: ..."; "" if it finds one.
std::string gpu_absent();

}  // namespace speclab
