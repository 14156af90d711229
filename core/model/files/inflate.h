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

/// The shape that a model is inflated to. 0: as it is.
struct InflateShape {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;

  bool any() const {
    return hidden > 0 || layers > 0 || heads > 0 || kv_heads > 0 || head_dim > 0 || ffn > 0 || vocab > 0;
  }
  void fields(OptionVisitor& visit);
};

/// An inflated twin: a model embedded in a larger shape, so that it computes the same function while its
/// bytes and operations are those of the larger one. Every added weight takes part in every product; what it
/// adds is zero because another factor is. The factors, by what is added:
///   residual channels   hold zero (zero rows of attn_out, ffn_down and embed_projection, zero columns of the
///   embeddings);
///                       the columns that read them are random. Weights of RMS norms are multiplied by
///                       sqrt(d/D) and eps by d/D, so that the mean over D channels serves for that over d
///   layers              random q, k, v, gate and up; zero attn_out and ffn_down. Spread evenly between the
///   original ones query heads         random q; zero columns of attn_out key/value heads     random k and v.
///   An original one is repeated where its query heads need more than one place dimensions of heads random q
///   and v, zero k and zero columns of attn_out (with norms of q and k: zero q too). Dimension i
///                       of d/2 pairs keeps its frequency, the scores keep their scale
///   feed-forward        random gate and up, zero columns of ffn_down
///   vocabulary          random rows of embedding and head; their logits are computed and then set to
///   -infinity
/// A product with an exact zero leaves a float sum as it is, and original weights stay in their order: only
/// the norms round differently, and not even they where D/d is a power of four. Random numbers are Philox,
/// addressed by tensor and position, and made when rows are read: nothing is stored.
class Inflation {
 public:
  /// Throws Error (`where` says which model) for a shape that `original` cannot be embedded in: smaller,
  /// heads that are no multiple of the key/value heads or too few of these, an odd head, a wider residual
  /// under layer norms (whose mean would change), a larger vocabulary for a reduced head, nothing to inflate.
  Inflation(const ModelConfig& original, const InflateShape& shape, const std::string& where);

  /// Of the twin; `inflated` in it names the original.
  const ModelConfig& config() const { return config_; }
  /// The original layer in this place of the twin; -1: an added one.
  int original_layer(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  /// Canonical name of the tensor that this one of the twin contains, or whose shape it has when its layer is
  /// an added one; `added` says which.
  std::string original_tensor(std::string_view name, bool* added = nullptr) const;
  /// Of a tensor of the twin, outermost first.
  std::vector<std::int64_t> shape(std::string_view name) const;

  /// What reads rows of an original tensor into `out`.
  template <typename T>
  using Read = std::function<void(const std::string& name, std::int64_t begin, std::int64_t end, T* out)>;
  /// Rows [begin, end) of a tensor of the twin, T = Bf16 or float. A vector is one row. Thread-safe.
  template <typename T>
  void read(std::string_view name, std::int64_t begin, std::int64_t end, const Read<T>& original,
            T* out) const;

 private:
  using Map = std::vector<int>;  ///< original index of each, -1: added
  struct Tensor {
    const Map* rows = nullptr;  ///< null: a vector
    const Map* columns = nullptr;
    bool random_rows = false, random_columns = false;  ///< what is added; else zero
    bool whole_heads = false;  ///< rows added to an original head are zero, in added heads they are random
    float fill = 0;            ///< of what is added to a vector
  };
  Tensor tensor(std::string_view base) const;

  ModelConfig config_;
  bool qk_norm_;
  Map layers_, hidden_, embedding_, query_, kv_, head_dim_, ffn_, vocab_, head_rows_, positions_;
};

}  // namespace speclab
