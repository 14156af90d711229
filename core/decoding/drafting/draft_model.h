#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/strategy.h"

// Parts for drafters that use a draft model: its sampling options, its KV cache, and a way to draw
// several children of a node.

namespace speclab {

/// Options of the draft's distribution.
struct DraftSampling {
  double temperature = -1;  ///< temperature of the draft's distribution; -1: the target's
  int top_k = -1;           ///< -1: the target's
  double top_p = -1;        ///< -1: the target's
  void fields(OptionVisitor& visit);
  /// The draft's parameters when the target samples with `target`.
  SamplingParams over(const SamplingParams& target) const;
};

/// The draft model's KV cache of one sequence. It compares its tokens with the text. So it does not need to
/// know what was accepted or who drafted. Positions whose tokens agree with the text stay in the cache, and
/// the missing tokens are fed (two after full acceptance, one after a rejection).
class DraftCache {
 public:
  /// Starts a sequence: empties the cache and prefills the prompt. A prompt that is longer than the draft's
  /// context is not prefilled.
  void begin(const Sequence& sequence, const Resources& resources);
  Session& session() { return *session_; }
  /// Length of the longest chain that fits into the draft's context. Drafted token i is fed at the
  /// position of the pending token + i; the last drafted token is never fed.
  std::int64_t room(const Sequence& sequence) const { return session_->capacity() - sequence.position(); }
  /// Approximate number of tokens before the pending token that the draft has not read yet. Tokens that it
  /// read and that were not accepted count as read.
  int behind(const Sequence& sequence) const {
    return static_cast<int>(std::max<std::int64_t>(
        0, sequence.position() - static_cast<std::int64_t>(cached_.size() + flying_.size())));
  }
  /// Keeps the positions and rows in flight that agree with the text, and drops the rest. `feed` becomes the
  /// missing tokens, at most 32, the pending token last; feed them as a chain. Prefills earlier missing ones.
  void catch_up(const Sequence& sequence, std::vector<Token>& feed);
  /// The same for a text that may go on after the pending token, such as the sequence's text with tokens that
  /// other drafts added. The first `unchanged` tokens must be the same in all calls since begin().
  void catch_up(TokenSpan text, std::size_t unchanged, std::vector<Token>& feed);
  /// Commits rows that were fed as a chain: missing tokens of the text, or drafted tokens. catch_up() later
  /// drops the rows whose tokens did not become part of the text.
  void keep(TokenSpan fed);
  /// Records the tokens of rows that were fed after the rows already in flight (Feed::continues).
  /// catch_up() commits the rows whose tokens became part of the text.
  void add_in_flight(TokenSpan fed) { flying_.insert(flying_.end(), fed.begin(), fed.end()); }

 private:
  void keep_prefilled(TokenSpan tokens);

  std::unique_ptr<Session> session_;
  std::vector<Token> cached_;  // tokens whose positions are committed
  std::vector<Token> flying_;  // tokens whose rows are in flight
  std::vector<int> path_;
};

/// Adds several children of one node, drawn from the draft's row without replacement (tree sampling of Chen
/// et al. 2024, Sequoia). The first is drawn from q. Each further one is drawn from q without the earlier
/// tokens, renormalised, and its node gets that distribution as its q. All children share one row
/// (Draft::take_out). At temperature 0, or once no mass is left, the next best token by logit is added
/// instead. It was not drawn, so it is one-hot (expansion by top-k: Miao et al. 2024, Section 3). Children
/// that are drawn one after the other have the same law as those of Sequoia's exponential race, which draws
/// all of them at once.
class SiblingDraw {
 public:
  /// Draws the token of a child from its distribution.
  using Draw = std::function<Token(const Distribution& q)>;

  /// Adds `count` children of `parent` to the draft; fewer when the row has fewer entries. With
  /// `uniform_rest`, once no mass is left, the further children are drawn from all other tokens with equal
  /// probability, except at temperature 0.
  void add(Draft& draft, int parent, int count, std::span<const float> logits, const SamplingParams& sampling,
           std::span<const Token> ids, int vocab, const Draw& draw, bool uniform_rest = false);

 private:
  bool assign_rest(Distribution& q, std::span<const Token> ids, int vocab);

  std::vector<float> scratch_;
  std::vector<TopEntry> best_;
  std::vector<Token> taken_;
  std::vector<double> rest_;  // [vocab]
};

}  // namespace speclab
