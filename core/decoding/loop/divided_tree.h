#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// A step's tree over several devices that all hold the model and the cache: lookahead parallelism (Fu et al.
/// 2024, Section 3.4). Guesses (leaves among the candidates) and columns of the window (probes) are dealt out
/// in order, as evenly as they can be; a device feeds those that it got with everything that they hang on, so
/// that the pending token and some of the first level are fed on several.
///
/// Devices tell each other tokens, never rows of the cache: what one has accepted the others have not
/// computed, so all of them feed it again, before the pending token of the next step. That is what the
/// authors' code does (LookaheadDecoding, lade/decoding.py, guess_skip_dist).
///
/// A device has the logits of the pending token and of every candidate that it feeds: it judges its guesses
/// without another's rows. Of its probes it has those that were dealt to it.
class DividedTree {
 public:
  struct Part {
    std::vector<std::int32_t> nodes;    ///< of the tree, ascending; node 0 first
    std::vector<Token> tokens;          ///< to feed: what was accepted before, then nodes
    std::vector<std::int32_t> parents;  ///< of tokens, indices into them
    std::vector<std::int32_t> rows;     ///< those that want logits, ascending, indices into tokens
    std::vector<float> logits;          ///< [rows, vocab], for the caller
    std::int64_t ns = 0;                ///< for the caller: what its forward took
  };

  /// Deals the tree out over `devices` >= 1. `accepted`: what the step before has accepted.
  void assign(const TokenTree& tree, TokenSpan accepted, int devices);
  std::span<Part> parts() { return std::span(parts_).first(used_); }

 private:
  std::vector<Part> parts_;  // more than used_ keep their memory
  std::size_t used_ = 0;
  std::vector<std::int32_t> guesses_, columns_;  // leaves among the candidates, probes
  std::vector<char> has_child_, dealt_;          // [nodes]
  std::vector<std::int32_t> index_of_;           // [nodes], into the tokens of a part; -1: not there
};

}  // namespace speclab
