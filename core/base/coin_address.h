#pragma once

#include <cstdint>

#include "core/base/philox.h"

// A coin is a random number with an address. This header defines the address. The host and the GPU compile
// the same code, so they use the same addresses.

namespace speclab {

/// What a coin decides. The value is part of the coin's address, so the meaning of a value never changes.
enum class Purpose : std::uint32_t {
  target = 0,    ///< a token drawn from a row of the target: without a draft, as bonus, by the rule
                 ///< sample_match, or after a rejection by a rule of rules_criterion.cpp
  draft = 1,     ///< a token drawn from a row of the draft
  accept = 2,    ///< an acceptance test; the choice of a path by the rule multi_path_block
  residual = 3,  ///< the token after a rejection, in all other rules
  gumbel = 4,    ///< noise of coupled sampling
  simulate = 5,  ///< the simulated acceptance of the strategy `simulated`; other choices that do not affect
                 ///< the distribution of the text
};

/// Returns the Philox counter of a coin. `draw` numbers the coins of one purpose at one position: 0, 1, ...
/// For the noise of coupled sampling (Purpose::gumbel), one counter gives the noise of several tokens. `draw`
/// is then the number of this group of tokens; see also noise_draw().
SPECLAB_HOST_DEVICE constexpr PhiloxCounter coin_counter(std::int64_t position, std::uint32_t purpose,
                                                         std::uint32_t draw) {
  const auto at = static_cast<std::uint64_t>(position);
  return {draw, purpose, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)};
}

/// Coupled sampling picks the token with the largest log p + noise. It may use several independent streams of
/// noise (Coins::kMostStreams). Returns `draw` of the first group of tokens of a stream. Stream 0 begins at
/// 0. The streams do not overlap, because a row has at most 2^24 groups.
SPECLAB_HOST_DEVICE constexpr std::uint32_t noise_draw(int stream) {
  return static_cast<std::uint32_t>(stream) << 24;
}

}  // namespace speclab
