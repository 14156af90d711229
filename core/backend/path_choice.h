#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/exp_log.h"

// How the rule multi_path_block chooses one of several paths (core/decoding/rules/rules_multi_path.cpp
// explains the rule). The host and the devices compile this arithmetic, and its results have the same bits.
//
// The rule orders the tokens of a row by p/q. It puts them into classes: in a class, p/q differs by less than
// 1 %, except in the lowest and the highest class. Classes have an order, the tokens of a class have none.
// So one pass over the row replaces a sort.
// Sums over classes are integers, so they do not depend on the order in which threads add the tokens.

namespace speclab {

/// The choices have coins (random numbers) of their own (Purpose::accept). Their draw numbers are larger than
/// any node number. The choice below a node has the number kFirstCoinOfChoice + node.
inline constexpr std::uint32_t kFirstCoinOfChoice = 0x80000000;

/// A class covers 1/128 of an octave of p/q. The lowest class also has all tokens with p/q below 2^-8, the
/// highest one all tokens with p/q of 2^8 or more.
inline constexpr int kRatioClasses = 2048;

/// Returns the class of a token, 0 to kRatioClasses - 1, ascending in p/q. Requires q > 0.
SPECLAB_EXACT int ratio_class(double p, double q) {
  constexpr std::int64_t kLowest = std::int64_t{1023 - 8} << 7;  // exponent and seven bits of 2^-8
  const double ratio = p / q;
  std::int64_t bits;
  std::memcpy(&bits, &ratio, sizeof bits);
  const std::int64_t found = (bits >> 45) - kLowest;
  return found < 0 ? 0 : found < kRatioClasses ? static_cast<int>(found) : kRatioClasses - 1;
}

/// Returns a probability in units of 2^-62, rounded down. The sum over a row fits into 64 bits.
SPECLAB_EXACT std::uint64_t class_mass(double probability) {
  return static_cast<std::uint64_t>(probability * 0x1p62);
}

/// What a choice among several draws from q changes for the tokens of a class. Best(x): probability that the
/// draw with the highest class (ties: the first) is x. `rho`: probability that a step keeps the path so far.
struct RatioClass {
  double factor = 0;  ///< Best(x) / q(x), the same for all x of the class
  double gain = 0;    ///< Best(class) - q(class)
  double room = 0;    ///< rho p(class) - q(class)
};

/// Returns the RatioClass of a class with the masses q and p. `before` is the mass of q in lower classes,
/// `all` the mass of q in all classes. `draws` is the number of draws. `rho`: see RatioClass.
SPECLAB_EXACT RatioClass ratio_class_of(std::uint64_t before, std::uint64_t q, std::uint64_t p,
                                        std::uint64_t all, int draws, double rho) {
  const double low = static_cast<double>(before) / static_cast<double>(all),
               high = static_cast<double>(before + q) / static_cast<double>(all);
  double factor = 0, power = 1;  // factor becomes (high^draws - low^draws) / (high - low)
  for (int i = 0; i < draws; ++i) {
    factor = factor * high + power;
    power *= low;
  }
  const double of_q = static_cast<double>(q) * 0x1p-62;
  return {factor, of_q * (factor - 1), rho * (static_cast<double>(p) * 0x1p-62) - of_q};
}

/// Returns q'(x) / q(x) for the tokens x of a class. q' is the law of the chosen token if the draw with the
/// highest class is chosen with probability `share`, and the first draw otherwise.
SPECLAB_EXACT double factor_at(double factor, double share) { return 1 + share * (factor - 1); }

/// Returns what a class adds to the derivative of sum min(q', rho p) with respect to the share.
SPECLAB_EXACT double slope_of(double gain, double room, double share) {
  const double added = share * gain;
  return added < room || (added == room && gain < 0) ? gain : 0;
}

/// Finds the share that maximises the sum over the classes of min(q'(class), rho p(class)). The sum is
/// concave, so the search halves [0, 1] by the sign of the slope. While the search is not done(), the caller
/// adds up slope_of() at share() for all classes, in the order of row_order.h, and passes the sum to tell().
class ShareSearch {
 public:
  SPECLAB_EXACT bool done() const { return done_; }
  SPECLAB_EXACT double share() const { return share_; }
  SPECLAB_EXACT void tell(double slope) {
    constexpr int kHalvings = 32;
    if (slope > 0) low_ = share_;
    else high_ = share_;
    share_ = low_ + (high_ - low_) / 2;
    done_ = !(high_ > 0) || ++tests_ > kHalvings;
  }
  /// 0 and 1 are exact; other shares are at most 2^-32 too large.
  SPECLAB_EXACT double found() const { return high_; }

 private:
  int tests_ = 0;
  double share_ = 0, low_ = 0, high_ = 1;
  bool done_ = false;
};

}  // namespace speclab
