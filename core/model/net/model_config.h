#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/token.h"

namespace speclab {

/// The kind of norm that a model uses.
enum class NormKind : std::uint8_t {
  kRms,    ///< x / rms(x) * weight (Zhang and Sennrich 2019)
  kLayer,  ///< (x - mean) / deviation * weight + bias (Ba et al. 2016)
};

/// A rotary embedding (Su et al. 2021): which dimensions of a head it rotates, and how fast. It has dims/2
/// frequencies: theta^(-2i/dims) for i = 0, 1, ... The scaling then changes them, see rope_frequencies() in
/// rope_table.h.
struct Rope {
  enum class Scaling : std::uint8_t {
    kNone,
    kLinear,   ///< frequencies / factor (Chen et al. 2023)
    kDynamic,  ///< beyond original_context, theta grows with the position ("dynamic NTK")
    kLlama3,   ///< low frequencies / factor, with a smooth transition (Grattafiori et al. 2024)
    kYarn,    ///< scales low frequencies only, and multiplies rotated values by attention_factor (Peng et al.
              ///< 2023)
    kListed,  ///< divides frequency i by divisors[i], and multiplies rotated values by attention_factor
              ///< (Llama 3 in GGUF; LongRoPE: Ding et al. 2024)
  };
  float theta = 0;
  /// Number of rotated dimensions, even. They are the first of a head. Pairs are (i, i + dims/2).
  int dims = 0;
  Scaling scaling = Scaling::kNone;
  float factor = 1;
  int original_context =
      0;  ///< context that the model was trained with; for kDynamic, kLlama3, kYarn and long_divisors
  float low_freq_factor = 1, high_freq_factor = 4;  ///< kLlama3
  /// kYarn: a frequency with more than beta_fast rotations within original_context is kept, one with fewer
  /// than beta_slow rotations is divided by `factor`, and a ramp is in between.
  float beta_fast = 32, beta_slow = 1;
  bool truncate = true;         ///< kYarn: rounds the ends of the ramp to whole dimensions
  float attention_factor = 1;   ///< kYarn, kListed: multiplies cos and sin
  std::vector<float> divisors;  ///< kListed, [dims/2]
  /// LongRoPE: divisors for sessions with room for more than original_context positions, [dims/2]. Empty
  /// without LongRoPE. Such a session uses them from its first token on, as llama.cpp does, so that all keys
  /// of the sequence are rotated alike. (transformers switches when the text grows past original_context, and
  /// then reads the text again.) So a capacity up to original_context and a larger one give different logits.
  std::vector<float> long_divisors;
  /// For an inflated twin (inflate.h) with larger heads: number of dimensions that it rotates; 0: as `dims`.
  /// The first dims/2 pairs keep the original's frequencies.
  int inflated_dims = 0;
};

/// The shape of the model that a twin was made from (inflate.h).
struct InflatedFrom {
  std::string name;
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
};

/// Shape and constants of a decoder, as read from a checkpoint. Immutable after loading. Every model family
/// is this decoder with other values:
///
///   x = embedding (* embedding_scale) (+ position embedding);
///   per layer: x += post_norm(attention(norm(x))), x += post_norm(ffn(norm(x)));
///              attention and ffn read the same x if `parallel`;
///   logits = soft_cap(head(norm(x))).
struct ModelConfig {
  std::string family;  ///< "llama", "qwen2", "gpt2", ...
  std::string name;    ///< for people: _name_or_path of config.json, or the name of the folder or GGUF file
  int hidden = 0;      ///< width d of the residual stream
  int layers = 0;      ///< L; 0 for a table, which has only embedding and output head (Markov models)
  int heads = 0;       ///< query heads
  int kv_heads = 0;    ///< key/value heads; heads % kv_heads == 0
  int head_dim = 0;    ///< dimensions of a head; need not be hidden / heads
  int ffn = 0;         ///< width of the feed-forward
  int vocab = 0;       ///< token ids are in [0, vocab); a draft has the ids of its target
  int context = 0;     ///< largest number of positions that the model supports
  float norm_eps = 1e-5f;
  float qk_norm_eps = 0;   ///< epsilon of the norms of q and k; 0: norm_eps
  float rope_theta = 0;    ///< theta of ropes[0], for people; 0 without a rotary embedding
  bool tied_head = false;  ///< the output head uses the matrix of the embedding
  bool final_norm = true;  ///< false for zero-layer tables and some trained heads
  int embedding_dim = 0;   ///< width of the embedding; differs from `hidden` if a projection follows (drafts)
  bool embedding_of_target = false;     ///< true for a draft that reads the target's embedding
  std::string target_embedding_sha256;  ///< SHA-256 of the target's embedding as bf16, row-major; empty when
                                        ///< the draft is not bound to it
  std::string target_tokenizer_sha256;  ///< Tokenizer::sha256() of the target; empty when the draft is not
                                        ///< bound to it
  /// True for decoder layers without embedding and output head, as in a trained head (vocab is then 0). Their
  /// input is Feed::embeddings, and taps read their output.
  bool bare = false;
  /// Width of a second input, Feed::beside, that only q, k and v of layer 0 read; 0: none. In the checkpoint,
  /// the first columns of these matrices belong to this input, the others to the residual stream (EAGLE-3: Li
  /// et al. 2025). Only decoder layers of a head (`bare`) have a second input.
  int beside = 0;
  /// Reduced output head: row i of the output head predicts head_ids[i] (ascending); all other tokens have
  /// probability 0. Empty = all tokens.
  std::vector<Token> head_ids;

  // Differences between families. The defaults are Llama's.
  NormKind norm = NormKind::kRms;
  float norm_offset = 0;    ///< added to the weights of all RMS norms (Gemma: 1)
  bool post_norms = false;  ///< the outputs of attention and feed-forward are normalised too
  bool qk_norm = false;     ///< every head of q and k is RMS-normalised before it is rotated
  bool qkv_bias = false, attn_out_bias = false, ffn_bias = false;
  Activation activation = Activation::kSilu;
  bool first_attn_norm = true;  ///< false: layer 0 has no norm before its attention (EAGLE: Li et al. 2024)
  bool gated = true;            ///< feed-forward is activation(gate) * up; false: activation(up)
  bool parallel = false;        ///< attention and feed-forward read the same x
  int position_rows = 0;        ///< rows of a learned position embedding; 0 without
  int position_offset = 0;      ///< position p reads row p + position_offset
  float embedding_scale = 1;
  float attention_scale = 0;     ///< factor of the scores; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  ///< 0: none
  float logit_soft_cap = 0;      ///< 0: none
  std::vector<Rope> ropes;       ///< the rotary embeddings, see rope_of
  std::vector<int> rope_of;      ///< [layers]: index into ropes, -1: no rotation
  std::vector<int> windows;  ///< [layers]: number of last positions that a position sees, itself included; 0:
                             ///< all. An empty list means 0 for all layers
  std::optional<InflatedFrom>
      inflated;  ///< set for a twin: the shape of its original. The sizes above are then those of the twin

  bool has_attn_norm(int layer) const { return layer > 0 || first_attn_norm; }
  int head_rows() const { return head_ids.empty() ? vocab : static_cast<int>(head_ids.size()); }
  /// Number of ids without those that a twin adds. The added ids come last and cannot be drawn.
  int tokens() const { return inflated ? inflated->vocab : vocab; }
  /// Whether sessions of this capacity use long_divisors.
  bool takes_long_divisors(int capacity) const {
    return !ropes.empty() && !ropes[0].long_divisors.empty() && capacity > ropes[0].original_context;
  }
  int query_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)]; }
};

}  // namespace speclab
