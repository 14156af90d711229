#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/coin_address.h"
#include "core/base/token.h"

namespace speclab {

/// Randomness addressed, not streamed: a coin is a pure function of (seed, prompt, position,
/// purpose, draw, token), so its value depends neither on order, batching and gamma nor on the backend.
/// Philox4x32-10 (Salmon et al. 2011). Copies are cheap and equal.
///
/// For proofs by enumeration a script replaces the generator: it is asked for one of several branches with
/// the given weights. The same strategies, verifiers and loop then walk every branch. A script answers each
/// question anew, so it cannot see that two decisions use one coin: for that a watch looks on while the
/// generator decides.
class Coins {
 public:
  struct Address {
    /// Absolute position of the token that is decided. Of the tokens of a draft, and other choices of a
    /// strategy, that of the pending token: such a coin belongs to one step (Sequence::draft_coin).
    std::int64_t position = 0;
    Purpose purpose = Purpose::target;
    std::uint32_t draw = 0;  ///< several coins of one purpose at one position: 0, 1, ...; of a draft the node
  };
  /// Returns the chosen index of `weights` (not normalised, sum > 0).
  using Script = std::function<std::size_t(std::span<const double> weights)>;
  /// Sees the address of every number that a decision takes, and the number; returns the number to take. For
  /// the noise of a position, Purpose::gumbel, it sees the address only, and its result is ignored.
  using Watch = std::function<double(const Address& address, double number)>;

  Coins(std::uint64_t seed, std::uint64_t prompt);
  static Coins scripted(Script* script);  ///< the script outlives the coins
  static Coins watched(std::uint64_t seed, std::uint64_t prompt, Watch* watch);  ///< the watch outlives them
  bool is_scripted() const { return script_ != nullptr; }
  bool is_watched() const { return watch_ != nullptr; }
  /// What a device needs to draw the same coins (core/backend/cuda/kernels/law.h).
  const PhiloxKey& key() const { return key_; }

  /// In [0, 1), 53 bits. Not available under a script (SPECLAB_CHECK): decisions go through the calls below.
  double uniform(const Address& address) const;
  /// True with this probability; never true for 0, always for 1.
  bool bernoulli(double probability, const Address& address) const;
  /// Index with probability weights[i] / sum; never one of weight 0. The sum must be positive and finite.
  std::size_t categorical(std::span<const double> weights, const Address& address) const;
  std::size_t categorical(std::span<const float> weights, const Address& address) const;

  /// Standard Gumbel noise of (position, token) for coupled sampling; tokens [first, first + out.size()).
  /// G = -log E with E exponential from a 32-bit uniform, accurate for the small E that win, so G < 22.9.
  /// The same bits on every machine (fixed polynomials, no libm, no FMA). Not available under a script.
  void gumbel(std::int64_t position, Token first, std::span<float> out) const;
  /// argmax over weights > 0 of log weights[token] + Gumbel(position, token), as the equal race argmin E /
  /// weight in float; ties to the lowest token. weights.size() when none is positive.
  std::size_t race(std::int64_t position, std::span<const float> weights) const;

 private:
  Coins() = default;
  PhiloxKey
      key_{};  // Philox of the prompt under the seed; counters are (draw or token block, purpose, position)
  Script* script_ = nullptr;
  Watch* watch_ = nullptr;
};

}  // namespace speclab
