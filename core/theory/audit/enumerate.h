#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/decoding/rows/coins.h"

// Exact laws of random programs, by running every branch of their coins.

namespace speclab::enumerate {

/// An outcome of a random program, for example the tokens that it emitted.
using Outcome = std::vector<Token>;

/// The exact law of a program whose only randomness is a Coins object. The program runs once for each
/// possible sequence of coin results. The probability of a run is the product of the probabilities of its
/// coin results. Coin results of probability zero are left out.
struct Law {
  std::map<Outcome, double> mass;
  double pruned = 0;  ///< total probability of the runs that were cut by `least`
  long runs = 0;
};

/// Enumerates all runs. A run is cut when its probability falls below `least`; every mass is then exact to
/// within `pruned`. A program that loops until it accepts needs such a bound. With 0 no run is cut.
Law law_of(const std::function<Outcome(const Coins&)>& program, double least = 0);

/// Enumerates like law_of(), for any statistic: after each run that was not cut, calls `visit` with the
/// probability of the run. Returns the total probability of the runs that were cut.
double walk(const std::function<void(const Coins&)>& program, const std::function<void(double)>& visit,
            double least = 0);

/// Half the sum of |a - b| over all outcomes.
double total_variation(const std::map<Outcome, double>& a, const std::map<Outcome, double>& b);

}  // namespace speclab::enumerate
