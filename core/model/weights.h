#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/checkpoint.h"
#include "core/model/model.h"

namespace speclab {

/// All weights of a decoder in the backend's layout. Private to the model layer.
struct Model::Weights {
  struct Layer {
    std::vector<float> attn_norm, ffn_norm;      // [hidden]
    PackedMatrix qkv;                            // [(heads + 2 kv_heads) * head_dim, hidden]: q, k, v
    PackedMatrix attn_out;                       // [hidden, heads * head_dim]
    PackedMatrix gate_up;                        // [2 * ffn, hidden]: gate, up
    PackedMatrix ffn_down;                       // [hidden, ffn]
  };
  ModelConfig config;
  std::shared_ptr<Backend> backend;
  PackedMatrix embedding;         // [vocab, embedding_dim]; of the target for a draft that shares it
  PackedMatrix embed_projection;  // [hidden, embedding_dim]; out == 0 when there is none
  std::vector<Layer> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedMatrix head;              // [head_rows, hidden]; the embedding itself when tied
  std::vector<float> rope_cos, rope_sin;  // [context, head_dim / 2]
  std::string tokenizer_sha256;

  Weights(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend, const Model* target);
  const std::string& embedding_sha256() const;

 private:
  mutable std::once_flag hashed_;
  mutable std::string embedding_sha256_;
};

}  // namespace speclab
