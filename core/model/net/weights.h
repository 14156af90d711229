#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/model.h"
#include "core/model/net/rope_table.h"

namespace speclab {

/// All weights of a decoder, in the backend's layout. Private to the model layer.
struct Model::Weights {
  struct Norm {
    Buffer<float> weight;  // [hidden], with norm_offset added
    Buffer<float> bias;    // [hidden], only for layer norms
  };
  struct Layer {
    Norm attn_norm, ffn_norm;
    Norm attn_post_norm, ffn_post_norm;  // absent unless config.post_norms
    Buffer<float> q_norm, k_norm;        // [head_dim]; absent unless config.qk_norm
    PackedMatrix qkv;                    // [(heads + 2 kv_heads) * head_dim, hidden]: q, k, v
    PackedMatrix qkv_beside;             // [the same rows, config.beside]; out == 0 when there is none
    PackedMatrix attn_out;               // [hidden, heads * head_dim]
    PackedMatrix gate_up;                // [2 * ffn, hidden]: gate, up; [ffn, hidden] when not gated: up
    PackedMatrix ffn_down;               // [hidden, ffn]
    Buffer<float> qkv_bias, attn_out_bias, gate_up_bias, ffn_down_bias;  // empty when absent
    int rope = -1;  // index into config.ropes; -1: no rotation
    int window = 0;
  };
  ModelConfig config;
  std::shared_ptr<Backend> backend;
  PackedMatrix embedding;  // [vocab, embedding_dim]; a draft may use the embedding of its target or, if the
                           // target is a twin, of the twin's original
  PackedMatrix embed_projection;  // [hidden, embedding_dim]; out == 0 when there is none
  PackedMatrix positions;         // [position_rows, hidden]; out == 0 when there are none
  std::vector<Layer> layers;
  Norm final_norm;
  PackedMatrix head;  // the output head, [head_rows, hidden]; the embedding itself when tied
  bool embedding_beside_target =
      false;  // true: the target is a twin and `embedding` belongs to its original; the twin does not read it
  int masked_rows =
      0;  // number of last rows of the output head that a twin adds, or that fill a draft up to its target
  std::optional<Tokenizer> tokenizer;
  std::string tokenizer_sha256;  // SHA-256 of the tokenizer; "" without one

  Weights(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend, const Model* target);
  const std::string& embedding_sha256() const;
  /// Returns tables of config.ropes for at least this many positions. The tables do not cover the whole
  /// context, because a file may state a huge one. Sessions share the tables; a longer session gets longer
  /// tables, which begin with the same rows. `long_divisors` selects the tables with Rope::long_divisors.
  std::shared_ptr<const std::vector<RopeBuffers>> rope_tables(int positions, bool long_divisors) const;
  // Returns the embedding. For a twin with an embedding of its own, returns the embedding of the original,
  // [inflated->vocab, inflated->hidden], which is packed at the first call.
  const PackedMatrix& original_embedding() const;

 private:
  // Reads rows of the embedding back from the backend, [end - begin, embedding.in].
  std::vector<float> embedding_rows(Token begin, Token end) const;
  mutable std::mutex rope_mutex_;
  struct RopeTables {
    std::shared_ptr<const std::vector<RopeBuffers>> tables;
    int positions = 0;
  };
  mutable RopeTables rope_tables_[2];  // the longest tables so far, without and with long_divisors
  mutable std::once_flag hashed_;
  mutable std::string embedding_sha256_;
  mutable std::once_flag extracted_;
  mutable PackedMatrix original_embedding_;
};

}  // namespace speclab
