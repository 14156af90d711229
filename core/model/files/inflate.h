#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bf16.h"
#include "core/base/options.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// The shape that a model is inflated to. 0 keeps the model's own size.
struct InflateShape {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;

  bool any() const {
    return hidden > 0 || layers > 0 || heads > 0 || kv_heads > 0 || head_dim > 0 || ffn > 0 || vocab > 0;
  }
  void fields(OptionVisitor& visit);
};

/// Makes an inflated twin: a model embedded in a larger shape. The twin computes the same function as the
/// original, but reads the bytes and does the operations of the larger shape. Every added weight takes part
/// in the products; it contributes zero because it is zero or is multiplied by zero. What is added:
///
///   channels of the      hold zero: zero rows of attn_out, ffn_down and embed_projection, zero columns of
///   residual stream      the embeddings. Matrices that read the residual stream have random columns for
///                        these channels. The original has d channels and the twin D: weights of RMS norms
///                        are multiplied by sqrt(d/D) and eps by d/D, so that the mean over D channels acts
///                        like the mean over d.
///   layers               random q, k, v, gate and up; zero attn_out and ffn_down. Added layers are spread
///                        evenly among the original ones.
///   query heads          random q; zero columns of attn_out.
///   key/value heads      random k and v. An original head is repeated if its query heads
///                        belong to several key/value heads of the twin.
///   dimensions of heads  random q and v, zero k and zero columns of attn_out (with norms of q and k, q is
///                        zero too). The original pairs of dimensions keep their RoPE frequencies, and
///                        attention scores keep their scale.
///   feed-forward         random gate and up; zero columns of ffn_down.
///   vocabulary           random rows of embedding and output head. The logits of added tokens are
///                        computed, then set to -infinity.
///
/// Adding a product with an exact zero does not change a float sum, and the original weights keep their
/// order. So only the norms round differently, and even they do not if D/d is a power of four. Random numbers
/// come from Philox and are addressed by tensor, row and column. They are made when rows are read; nothing is
/// stored.
class Inflation {
 public:
  /// Throws Error (`where` names the model) if `original` cannot be embedded in the shape. Reasons are a
  /// smaller size, a number of heads that is no multiple of the key/value heads, too few key/value heads, an
  /// odd head_dim, a wider residual stream with layer norms (whose mean would change), a larger vocabulary of
  /// a draft that has a reduced output head or uses its target's embedding, sizes beyond the limits, an
  /// original that is a twin or has no layers, and a shape without any size.
  Inflation(const ModelConfig& original, const InflateShape& shape, const std::string& where);

  /// The configuration of the twin. Its `inflated` names the original.
  const ModelConfig& config() const { return config_; }
  /// The layer of the original that this layer of the twin contains; -1 for an added layer.
  int original_layer(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  /// Canonical name of the original tensor that a tensor of the twin contains. A tensor of an added layer
  /// contains none; `added` then becomes true, and the result names the original tensor of the same kind in
  /// the nearest original layer before.
  std::string original_tensor(std::string_view name, bool* added = nullptr) const;
  /// The shape of a tensor of the twin, outermost first.
  std::vector<std::int64_t> shape(std::string_view name) const;

  /// Reads rows of an original tensor into `out`.
  template <typename T>
  using Read = std::function<void(const std::string& name, std::int64_t begin, std::int64_t end, T* out)>;
  /// Makes rows [begin, end) of a tensor of the twin; T = Bf16 or float. A vector is one row. Thread-safe.
  template <typename T>
  void read(std::string_view name, std::int64_t begin, std::int64_t end, const Read<T>& original,
            T* out) const;

 private:
  using Map = std::vector<int>;  ///< original index of each index of the twin; -1: added
  struct Tensor {
    const Map* rows = nullptr;  ///< null for a vector
    const Map* columns = nullptr;
    bool random_rows = false, random_columns = false;  ///< whether added entries are random; false: zero
    bool whole_heads = false;  ///< rows added to an original head are zero; rows of added heads are random
    float fill = 0;            ///< value of entries added to a vector
  };
  Tensor tensor(std::string_view base) const;

  ModelConfig config_;
  bool qk_norm_;
  Map layers_, hidden_, embedding_, query_, kv_, head_dim_, ffn_, vocab_, head_rows_, positions_;
};

}  // namespace speclab
