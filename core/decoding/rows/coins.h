#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/coin_address.h"
#include "core/base/token.h"

namespace speclab {

/// The source of randomness. Coins are addressed, not streamed: a coin is a pure function of (seed, prompt,
/// position, purpose, draw, token). Its value does not depend on the order of calls, on batching, on gamma or
/// on the backend. The generator is Philox4x32-10 (Salmon et al. 2011). Copies are cheap and give the same
/// coins.
///
/// Tests replace the generator by a script to prove laws by enumeration. At each decision the script chooses
/// one of several branches with given weights. The strategies, verifiers and the loop run unchanged, once for
/// every sequence of branches. A script cannot see whether two decisions use the same coin. A watch can: the
/// generator still makes the numbers, and the watch sees the address of every coin. It may replace the
/// number.
class Coins {
 public:
  struct Address {
    /// Absolute position of the token that is decided. For drafted tokens, for other choices of a strategy
    /// and for rules that judge whole paths (rules_paths.cpp) it is the position of the pending token, so
    /// that the coin belongs to one step (Sequence::draft_coin).
    std::int64_t position = 0;
    Purpose purpose = Purpose::target;
    /// Numbers the coins of one purpose at one position: 0, 1, ... For a draft, and for rules that judge
    /// whole paths, it is the node.
    std::uint32_t draw = 0;
  };
  static constexpr int kMostStreams = 64;  ///< largest number of noise streams of coupled sampling
  /// Chooses an index of `weights` (not normalised, sum > 0).
  using Script = std::function<std::size_t(std::span<const double> weights)>;
  /// Called with the address and the value of every number that a decision uses; returns the number to use.
  /// For the noise of a position (Purpose::gumbel) the watch gets only the address, and its result is
  /// ignored.
  using Watch = std::function<double(const Address& address, double number)>;

  Coins(std::uint64_t seed, std::uint64_t prompt);
  static Coins scripted(Script* script);  ///< the script must outlive the coins
  static Coins watched(std::uint64_t seed, std::uint64_t prompt,
                       Watch* watch);  ///< the watch must outlive the coins
  bool is_scripted() const { return script_ != nullptr; }
  bool is_watched() const { return watch_ != nullptr; }
  /// The key with which a device draws the same coins (core/backend/cuda/kernels/law.h).
  const PhiloxKey& key() const { return key_; }

  /// A number in [0, 1) with 53 bits. Not available under a script
  /// (SPECLAB_CHECK): decisions use the calls below.
  double uniform(const Address& address) const;
  /// True with the given probability: never for 0, always for 1.
  bool bernoulli(double probability, const Address& address) const;
  /// Returns index i with probability weights[i] / sum, never one of weight 0. The
  /// sum must be positive and finite.
  std::size_t categorical(std::span<const double> weights, const Address& address) const;
  std::size_t categorical(std::span<const float> weights, const Address& address) const;

  /// Computes the standard Gumbel noise G of coupled sampling at a position, for the tokens
  /// [first, first + out.size()). G = -log E, where E is exponential and made from a 32-bit uniform
  /// number. E has a small relative error also when it is tiny. This matters, because the token with the
  /// smallest E / weight is chosen (race()). G is below 22.9, because E is at least 2^-33. The noise has the
  /// same bits on every machine (fixed polynomials, no libm, no FMA).
  /// Each stream of a position is independent noise. Not available under a script.
  void gumbel(std::int64_t position, Token first, std::span<float> out, int stream = 0) const;
  /// Returns the argmax over weights > 0 of log weights[token] + Gumbel(position, token). It is computed
  /// in float as the equivalent race argmin E / weight. Ties go to the lowest token. Returns
  /// weights.size() when no weight is positive, or E / weight is infinite in float for all tokens. If
  /// `arrival` is not null, sets it to the winner's E / weight, or to infinity when there is no winner.
  std::size_t race(std::int64_t position, std::span<const float> weights, int stream = 0,
                   float* arrival = nullptr) const;

 private:
  Coins() = default;
  PhiloxKey key_{};  // Philox output for the prompt number, with the seed as key; the counter of a coin is
                     // (draw or group of tokens, purpose, position)
  Script* script_ = nullptr;
  Watch* watch_ = nullptr;
};

}  // namespace speclab
