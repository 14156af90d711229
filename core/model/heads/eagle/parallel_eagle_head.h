#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/model/heads/eagle/eagle_head.h"

namespace speclab {

/// The head of P-EAGLE (arXiv 2602.01469): a head of EAGLE-3 (eagle_head.h) that drafts several tokens in one
/// forward. A pair (f_p, x_(p+1)) of the newest committed position p gives the logits of x_(p+2), as in
/// EAGLE-3. For the tokens after that one, neither feature nor token is known. Pairs of a mask stand in their
/// place, at the positions p + 1, p + 2, ...:
///
///     (W_fc m, E(mask)),   where m is a trained vector that all places share.
///
/// Attention is causal, so a mask sees the committed pairs and the masks before it, and its logits do not
/// depend on the tokens that are drawn at other places. The K/V of masks are dropped. The K/V of
/// committed pairs come from true states alone.
///
/// Tensors: those of EAGLE-3 with further layers, see eagle_head.h, and mask_hidden [1, 3 d], which is m. The
/// names are those that vLLM reads ("parallel drafting").
class ParallelEagleHead {
 public:
  /// Loads the weights on the backend of the target. Throws Error like HeadFile.
  ParallelEagleHead(const HeadCard& card, const std::shared_ptr<const Model>& target);

  std::span<const Token> ids() const { return head_.ids(); }  ///< as in EagleHead
  int rows() const { return head_.rows(); }                   ///< as in EagleHead
  int state_width() const { return head_.state_width(); }     ///< as in EagleHead
  const Model& layers() const { return head_.layer(); }
  int count() const { return count_; }  ///< most tokens of one forward

  /// Reads the pairs of the next positions and commits them. `states`: [pairs, state_width()], on the host.
  /// `after`: the token after each position. `session` is on layers().
  void read(HeadRunner& runner, Session& session, const float* states, TokenSpan after);
  /// Does the same, and drafts in the same forward: computes the logits of the first `wanted` tokens after
  /// the last one of `after`, [wanted, rows()], from 1 to count() of them.
  void draft(HeadRunner& runner, Session& session, const float* states, TokenSpan after, int wanted,
             HeadRows& to);

 private:
  void run(HeadRunner& runner, Session& session, const float* states, TokenSpan after, int masks);

  EagleHead head_;
  int count_;
  Token mask_;
  std::vector<float> mask_states_;  // m
  std::vector<float> inputs_;       // states of the pairs, and m for each mask
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_, wanted_;
  std::vector<int> path_;
  HeadRows states_, features_, predicted_;
};

}  // namespace speclab
