#pragma once

#include <string>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Shape and constants of a decoder, as read from a checkpoint. Immutable after loading.
struct ModelConfig {
  std::string family;   ///< "llama"
  std::string name;     ///< what the file calls itself, for people
  int hidden = 0;       ///< residual width d
  int layers = 0;       ///< L; 0 is allowed: a table (embedding -> head), as in Markov models
  int heads = 0;        ///< query heads
  int kv_heads = 0;     ///< key/value heads; heads % kv_heads == 0
  int head_dim = 0;     ///< per head; need not be hidden / heads
  int ffn = 0;          ///< width of the gated feed-forward
  int vocab = 0;        ///< token ids are 0 .. vocab-1 (of the target, for a draft too)
  int context = 0;      ///< most positions that the model was made for
  float norm_eps = 1e-5f;
  float rope_theta = 0;
  bool tied_head = false;    ///< the head is the embedding
  bool final_norm = true;    ///< false only for zero-layer tables
  int embedding_dim = 0;     ///< width of the embedding; differs from hidden when it is projected (drafts)
  bool embedding_of_target = false;     ///< a draft that reads the target's embedding
  std::string target_embedding_sha256;  ///< of that embedding as bf16, row-major; empty when not bound
  std::string target_tokenizer_sha256;  ///< Tokenizer::sha256() of the target; empty when not bound
  /// Reduced head: row i of the head predicts head_ids[i] (ascending); empty = all tokens. q = 0 elsewhere.
  std::vector<Token> head_ids;

  int head_rows() const { return head_ids.empty() ? vocab : static_cast<int>(head_ids.size()); }
  int query_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

}  // namespace speclab
