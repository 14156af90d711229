#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bf16.h"
#include "core/base/token.h"

namespace speclab {

/// A matrix of bf16 weights in the backend's own layout. [out, in]
struct PackedMatrix {
  int out = 0;
  int in = 0;
  std::shared_ptr<void> data;
  std::uint64_t bytes = 0;
};

/// How an in-flight row sees keys: all committed positions [0, committed) in slot order, then the rows of its own path.
struct AttentionRow {
  int committed = 0;                       ///< keys in slots 0 .. committed-1, positions = slots
  std::span<const std::int32_t> path;      ///< slots of in-flight ancestors and itself, by position
};

/// How the scores of attention become weights.
struct AttentionForm {
  float scale = 0;     ///< on q . k; 0: 1 / sqrt(head_dim)
  float soft_cap = 0;  ///< scores become cap * tanh(score / cap), after the scale; 0: they stay
  int window = 0;      ///< a row sees the last so many positions, its own included; 0: all
};

enum class Activation : std::uint8_t {
  kSilu,      ///< x / (1 + exp(-x))
  kGelu,      ///< x * Phi(x), with the error function (Hendrycks and Gimpel 2016)
  kGeluTanh,  ///< its approximation there: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kRelu,      ///< max(x, 0)
};

/// KV cache of one sequence: for each layer the keys and values of all slots, in the backend's layout and precision.
struct KvStore {
  int layers = 0, kv_heads = 0, head_dim = 0, slots = 0;
  std::uint64_t bytes_per_position = 0;  ///< K and V, all layers
  std::shared_ptr<void> data;
  std::uint64_t bytes = 0;
};

/// The device operations that a decoder needs; float activations are row-major. One of the two virtual interfaces of
/// the project (the other is Strategy). Every operation computes a row with the same order of floating-point
/// operations whatever the number of rows and threads.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Name of the arithmetic: bits are promised within one class, never across. "f32", "f32-kv16", ...
  virtual std::string_view numerics_class() const = 0;
  virtual std::string_view device_name() const = 0;
  virtual int threads() const = 0;

  /// Packs rows delivered by `read(begin, end, out)` ([end-begin, in] bf16; called from several threads).
  virtual PackedMatrix pack(int out, int in, const std::function<void(int begin, int end, Bf16* rows)>& read) = 0;
  virtual KvStore allocate_kv(int layers, int kv_heads, int head_dim, int slots) = 0;
  /// Copies the first `slots` slots of every layer and head; both stores are of the same model, `to` may hold more.
  virtual void copy_kv(const KvStore& from, int slots, KvStore& to) = 0;

  /// y[i] (+)= W x[i] for n rows. x [n, W.in], y [n, W.out].
  virtual void linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) = 0;
  /// Row `tokens[i]` of a packed table as float. out [n, table.in]
  virtual void gather(const PackedMatrix& table, TokenSpan tokens, float* out) = 0;
  /// out[i] = x[i] / rms(x[i]) * weight. [n, d]; out may be x.
  virtual void rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) = 0;
  /// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight + bias. [n, d]; out may be x.
  virtual void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d, float* out) = 0;
  /// rms_norm of each of `heads` vectors of d that lie together at x + i * stride, with one weight [d], in place.
  virtual void rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n, int d) = 0;
  /// Rotates the first `rotated` dimensions of every head of the q and k parts of qkv [n, (heads + 2 kv_heads) * head_dim]
  /// by the rows' positions (pairs i, i + rotated/2) with cos/sin tables [positions, rotated/2], and stores k and v in
  /// slots[i] of `layer`. rotated: kWholeHead, or even; 0 rotates nothing and reads no table.
  virtual void rope_and_store(float* qkv, int n, int heads, const float* cos, const float* sin, std::span<const std::int32_t> positions,
                              KvStore& kv, int layer, std::span<const std::int32_t> slots, int rotated = kWholeHead) = 0;
  static constexpr int kWholeHead = -1;
  /// Softmax attention of the n query rows of qkv over what `rows` and the window let them see. out [n, heads * head_dim]
  virtual void attention(const float* qkv, int heads, const KvStore& kv, int layer, std::span<const AttentionRow> rows, float* out,
                         const AttentionForm& form = {}) = 0;
  /// out[i] = silu(gate) * up; gate_up [n, 2 * ffn] (gate first). out [n, ffn]
  virtual void silu_multiply(const float* gate_up, int n, int ffn, float* out) = 0;
  /// out[i] = f(x[i]), or f(gate) * up when gated. x [n, ffn] or [n, 2 * ffn] (gate first), out [n, ffn]
  virtual void activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) = 0;
  /// Every row y[i] += x, one vector for all. y [n, d], x [d]
  virtual void add_bias(const float* x, int n, int d, float* y) = 0;
  /// y += x. [n, d]
  virtual void add(const float* x, int n, int d, float* y) = 0;
  /// x *= factor. [n, d]
  virtual void scale(float factor, int n, int d, float* x) = 0;
  /// x = cap * tanh(x / cap). [n, d]
  virtual void soft_cap(float cap, int n, int d, float* x) = 0;
  /// Moves slots from[j] to to[j] in order, all layers (from[j] >= to[j]).
  virtual void move_slots(KvStore& kv, std::span<const std::int32_t> from, std::span<const std::int32_t> to) = 0;
};

struct CpuBackendOptions {
  int threads = 0;              ///< 0: every core that the affinity mask and the cgroup allow
  std::string numerics = "auto";  ///< "auto" (f32-kv16), one of cpu_numerics_classes(), "avx512-bf16-emulated" or "amx-bf16-emulated"
};
/// The classes that this CPU can compute, "f32" first.
std::vector<std::string> cpu_numerics_classes();
/// Throws Error for an unknown numerics class (naming those that this CPU has) or a thread count out of range.
std::shared_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace speclab
