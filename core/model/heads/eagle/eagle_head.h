#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/net/session.h"

namespace speclab {

/// The head of EAGLE and EAGLE-2 (Li et al. 2024, arXiv 2401.15077 and 2406.16858) or of EAGLE-3 (Li et al.
/// 2025, arXiv 2503.01840): one decoder layer with its own KV cache. It reads pairs of a feature f_p, which
/// stands for position p, and the token after it, x_(p+1). It predicts the feature of position p + 1, whose
/// logits are for the token x_(p+2). A pair (f_p, x_(p+1)) has position p in the layer.
///
/// EAGLE (version 1): f_p is the target's state after the final norm. The layer has no norm before its
/// attention, and the output head is the target's:
///
///     layer input = W_fc (E(x) ++ f) + b,   logits = W_target f'.
///
/// HASS (Zhang et al. 2024, arXiv 2408.15766) trains such heads in another way and drafts in the same way.
///
/// EAGLE-3: f_p = W_fc (three states of the target). Queries, keys and values read norm(E(x)) ++ norm(f),
/// and f is the residual stream. The head has an output head of its own, over the tokens of ids():
///
///     logits = W_head norm(f').
///
/// E is the target's embedding and f' the predicted feature, which replaces f at drafted positions.
///
/// Tensors, as in the published files. Version 1: fc.weight [d, 2 d], perhaps fc.bias, and layers.0.* without
/// input_layernorm. EAGLE-3: fc.weight [d, 3 d]; midlayer.* (or layers.0.*), which has hidden_norm and
/// input_layernorm, and q, k and v of [., 2 d]; norm.weight; lm_head.weight [rows, d]; perhaps d2t and t2d
/// (HeadFile::token_offsets). A copy of the embedding (embed_tokens.weight) is not read. A head of P-EAGLE
/// (parallel_eagle_head.h) has the tensors of EAGLE-3, and perhaps further layers of Llama's form, layers.1.*
/// and so on. Its training changes the embedding, so its embed_tokens.weight [vocab, d] is read if present.
class EagleHead {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile.
  EagleHead(const HeadCard& card, const std::shared_ptr<const Model>& target);

  /// The tokens of the logits, ascending; empty: all tokens of the target.
  std::span<const Token> ids() const { return ids_; }
  int rows() const { return rows_; }
  /// Width of the states of one position, concatenated.
  int state_width() const { return state_width_; }
  const Model& layer() const { return *layer_; }

  /// Computes features from states of the target, [positions, state_width()].
  void features(HeadRunner& runner, const HeadRows& states, HeadRows& to);
  /// Runs the layer over pairs and writes the predicted features of the rows `wanted` (empty: of all) to
  /// `to`. `session` is on layer(). `parents` and `continues` are as in Feed. `to` must not be `features`.
  struct Pairs {
    Session& session;
    TokenSpan tokens;
    const HeadRows& features;
    std::span<const std::int32_t> parents;
    bool continues = false;
    std::span<const std::int32_t> wanted = {};
  };
  void forward(HeadRunner& runner, const Pairs& pairs, HeadRows& to);
  /// Computes the logits from predicted features, [rows of features, rows()].
  void logits(HeadRunner& runner, const HeadRows& features, HeadRows& to);

 private:
  int version_, rows_, state_width_;
  std::vector<Token> ids_;
  std::shared_ptr<const Model> layer_;
  HeadLinear fc_, out_;                  // out_ only in EAGLE-3
  HeadNorm embedding_norm_, norm_;       // only in EAGLE-3
  std::vector<PackedMatrix> embedding_;  // the head's own, one matrix; empty: the target's is used
  HeadRows embedded_, input_, scratch_;
  std::vector<std::int32_t> all_;
};

}  // namespace speclab
