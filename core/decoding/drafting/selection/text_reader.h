#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/rows/distribution.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Computes the target's distributions of the tokens that a step emitted, after processors and sampling, from
/// the rows of the step. `laws` gets at least outcome.emitted entries; its memory is reused. Call it in
/// observe().
void emitted_laws(const Sequence& sequence, const Outcome& outcome, std::vector<Distribution>& laws);

/// The probability that a token drawn from q is accepted where the text went on with `token` at `position`.
/// `p` is the target's distribution there. The probability is the sum of min(p, q), that is alpha of this
/// place (Leviathan et al. 2023, Corollary 3.6). Without p the probability is q(token): the target is greedy,
/// so p has all its mass on `token`. With coupled sampling the probability is 1 if the noise of this position
/// draws `token` from q, otherwise 0.
double acceptance_of(const Sequence& sequence, const Distribution& q, const Distribution* p, Token token,
                     std::int64_t position);

/// Lets a draft model read the tokens that were emitted without it, and computes how often its drafts would
/// have been accepted there. One forward reads the tokens of all sequences of a batch. The draft model reads
/// the text itself, so this is exact for any drafter whose q depends only on the text before the token.
class TextReader {
 public:
  explicit TextReader(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  /// A sequence whose end the model has not read.
  struct Text {
    const Sequence* sequence;  ///< the last token, which is pending, is not read
    DraftCache* cache;         ///< the model's cache of the sequence; room() must be positive
    SamplingParams sampling;   ///< of the draft
    int wanted;  ///< number of tokens at the end of the text whose acceptance is wanted, at least 1
    /// [wanted], the target's distributions of these tokens; empty: the target is greedy, or sampling is
    /// coupled.
    std::span<const Distribution> p;
    /// Out: the acceptance at the last tokens of the text, in order. It has fewer than `wanted` entries if
    /// more tokens are missing than one forward reads (DraftCache::catch_up()).
    std::vector<double>* acceptance;
  };
  /// Reads the missing tokens of these texts. Afterwards the caches hold all tokens but the pending one.
  void read(std::span<const Text> texts);

 private:
  std::shared_ptr<const Model> model_;
  struct Reading {
    std::vector<Token> feed;
    std::vector<std::int32_t> parents, rows;
    std::vector<float> logits;  // [rows, head_rows]
  };
  std::vector<Reading> readings_;  // of each text, reused
  std::vector<Feed> feeds_;
  std::vector<float> processed_;  // [head_rows]
  Distribution q_;
};

}  // namespace speclab
