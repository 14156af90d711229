#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/strategy.h"

// What drafters that ask a model have in common.

namespace speclab {

/// What the draft samples with.
struct DraftSampling {
  double temperature = -1;  ///< of the draft's own distribution; -1: the target's
  int top_k = -1;           ///< -1: the target's
  double top_p = -1;        ///< -1: the target's
  void fields(OptionVisitor& visit);
  /// For a target that samples with `target`.
  SamplingParams over(const SamplingParams& target) const;
};

/// The draft model's cache of one sequence, which follows the text by comparison: whatever was accepted, and
/// whoever drafted, positions stay whose tokens are those of the text, and the rest is fed (two tokens after
/// full acceptance, one after a rejection).
class DraftCache {
 public:
  /// A sequence begins: prefills its prompt; nothing when that is longer than the draft's context.
  void begin(const Sequence& sequence, const Resources& resources);
  Session& session() { return *session_; }
  /// Tokens that may be drafted in a row: token x_i is fed at the pending position + i, the last one never.
  std::int64_t room(const Sequence& sequence) const { return session_->capacity() - sequence.position(); }
  /// Keeps what the text has, of the rows in flight too, and drops the rest. `feed` becomes what is missing,
  /// the pending token last: to be fed as a chain.
  void catch_up(const Sequence& sequence, std::vector<Token>& feed);
  /// Rows were fed as a chain and belong to the text as far as this drafter knows: they are committed.
  void keep(TokenSpan fed);
  /// Rows were fed behind those in flight (Feed::continues); catch_up() finds out which the text has taken.
  void fly(TokenSpan fed) { flying_.insert(flying_.end(), fed.begin(), fed.end()); }

 private:
  void keep_prefilled(TokenSpan tokens);

  std::unique_ptr<Session> session_;
  std::vector<Token> cached_;  // tokens that are committed
  std::vector<Token> flying_;  // and in flight
  std::vector<int> path_;
};

/// The children of one node, drawn from the draft's row without replacement (tree sampling of Chen et al.
/// 2024, Sequoia): the first from q, each other one from q without the tokens before it, renormalised, which
/// is the q that it is handed over with. Where no mass is left, and at temperature 0, the next best token by
/// logit takes the place; nothing drew it, so it is one-hot (expansion by top-k: Miao et al. 2024, Section
/// 3).
class SiblingDraw {
 public:
  /// Draws the token of a child from its law.
  using Draw = std::function<Token(const Distribution& q)>;

  /// Adds `count` children of `parent` to the draft; fewer where the row has fewer entries.
  void add(Draft& draft, int parent, int count, std::span<const float> logits, const SamplingParams& sampling,
           std::span<const Token> ids, int vocab, const Draw& draw);

 private:
  std::vector<float> scratch_;
  std::vector<TopEntry> best_;
  std::vector<Token> taken_;
};

}  // namespace speclab
