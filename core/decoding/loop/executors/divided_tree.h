#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// Divides the tree of a step over several devices, each of which holds the model and the KV cache: lookahead
/// parallelism (Fu et al. 2024, Section 3.4). Guesses (leaves among the candidates) and window columns
/// (probes) are dealt out in order and as evenly as possible. A device feeds the nodes of its share and all
/// their ancestors. So every device feeds the pending token, and several devices feed the same parts of level
/// 0 of the window (LookaheadWindow).
///
/// Devices exchange tokens, never rows of the KV cache. When one device accepts tokens, the other devices
/// have no K/V rows for them. So in the next step all devices feed the accepted tokens again, before the
/// pending token. The authors' code does the same (LookaheadDecoding, lade/decoding.py, guess_skip_dist).
///
/// A device has the logits of the pending token and of every candidate that it feeds, so it can judge its
/// guesses without the other devices. It also has the logits of the probes that were dealt to it.
class DividedTree {
 public:
  struct Part {
    std::vector<std::int32_t> nodes;    ///< nodes of the tree, ascending; node 0 first
    std::vector<Token> tokens;          ///< tokens to feed: the previously accepted ones, then `nodes`
    std::vector<std::int32_t> parents;  ///< parent of each token, as an index into tokens
    std::vector<std::int32_t> rows;     ///< tokens whose logits are wanted, as ascending indices into tokens
    std::vector<float> logits;          ///< [rows, vocab], filled by the caller
  };

  /// Deals the tree out over `devices` >= 1. `accepted`: the tokens that the previous step accepted.
  void assign(const TokenTree& tree, TokenSpan accepted, int devices);
  std::span<Part> parts() { return std::span(parts_).first(used_); }

 private:
  std::vector<Part> parts_;  // the first used_ are valid; the others keep their memory
  std::size_t used_ = 0;
  std::vector<std::int32_t> guesses_, columns_;  // leaves among the candidates, probes
  std::vector<char> has_child_, dealt_;          // [nodes]
  std::vector<std::int32_t> index_of_;           // [nodes], into the tokens of a part; -1: not there
};

}  // namespace speclab
