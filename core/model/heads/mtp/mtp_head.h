#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/heads/head_card.h"
#include "core/model/heads/head_runner.h"
#include "core/model/net/session.h"

namespace speclab {

/// Modules for multi-token prediction, which are trained together with the target and are part of its
/// checkpoint (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv 2412.19437, Section 2.2). Module k =
/// 1,
/// ..., D has one decoder layer T_k with its own KV cache. With h^0_i the target's state of position i and x
/// the text, at position i (equations 21 to 23):
///
///     h^k_i = T_k(W_k (norm_e E(x_(i+k)) ++ norm_h h^(k-1)_i)),   logits of x_(i+k+1) = W_out norm h^k_i.
///
/// E and W_out are those of the target. Here modules count from 0: module 0 reads states of the target.
/// A checkpoint with one module drafts several tokens by it: the output h^1_i then takes the place of the
/// state of position i + 1, which is not known, as in EAGLE.
///
/// The published files differ in names and in two more things, see MtpForm: which input of W_k comes first,
/// and whether h^k is passed on before or after its norm. scripts/models/convert_head.py takes the modules
/// out of a checkpoint. Tensors, with the names of DeepSeek-V3 and the number k of the module from 0:
/// layers.k.enorm, layers.k.hnorm, layers.k.eh_proj.weight [d, 2 d], layers.k.input_layernorm,
/// layers.k.self_attn.*, layers.k.post_attention_layernorm, layers.k.mlp.* with the names of Llama and Qwen3
/// in transformers, and layers.k.shared_head.norm. With a vocabulary map, lm_head.weight [rows, d] is the
/// output head of all modules. Copies of the embedding and of the output head are not read.
class MtpHead {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile, and for a module with a
  /// mixture of experts or with latent attention, whose tensors have other names.
  MtpHead(const HeadCard& card, const std::shared_ptr<const Model>& target);

  int modules() const { return static_cast<int>(modules_.size()); }
  /// The tokens of the logits, ascending; empty: all tokens of the target.
  std::span<const Token> ids() const { return ids_; }
  int rows() const { return rows_; }
  const Model& layer(int module) const { return *modules_[static_cast<std::size_t>(module)].layer; }

  /// What a module reads: states, [pairs, d], and as many tokens. `session` is on layer(module). `parents`
  /// and `continues` are as in Feed. `wanted`: the rows whose outputs are needed; empty: all.
  struct Pairs {
    Session& session;
    TokenSpan tokens;
    const HeadRows& states;
    std::span<const std::int32_t> parents;
    bool continues = false;
    std::span<const std::int32_t> wanted = {};
  };
  /// Runs a module and writes the outputs that the next one reads to `to`, which must not be `states`.
  void forward(HeadRunner& runner, int module, const Pairs& pairs, HeadRows& to);
  /// Computes the logits from outputs of a module, [rows of outputs, rows()].
  void logits(HeadRunner& runner, int module, const HeadRows& outputs, HeadRows& to);

 private:
  struct Module {
    HeadNorm embedding_norm, state_norm, final_norm;
    HeadLinear projection;
    std::shared_ptr<const Model> layer;
  };
  Module load(const HeadFile& file, const std::string& at, const Model& target) const;

  bool state_first_, passes_normed_;
  ModelConfig layer_;
  int rows_;
  std::vector<Token> ids_;
  std::vector<Module> modules_;
  HeadLinear out_;  // only with a vocabulary map
  HeadRows embedded_, states_, input_, normed_;
};

}  // namespace speclab
