#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/decoding/rows/coins.h"

namespace speclab::enumerate {

/// An outcome of a random program, for example the tokens that it emitted.
using Outcome = std::vector<Token>;

/// Exact law of a program whose only randomness is a Coins: the program is run again for each sequence of
/// branches, and the probabilities of the branches along a run are multiplied. Branches of weight zero are
/// not walked.
struct Law {
  std::map<Outcome, double> mass;
  double pruned = 0;  ///< total probability of the runs that were cut by `least`
  long runs = 0;
};

/// Cuts a run whose probability falls below `least`; every mass is then exact to within `pruned`. Programs
/// that loop until they accept need such a bound; 0 walks everything.
Law law_of(const std::function<Outcome(const Coins&)>& program, double least = 0);

/// The same for any statistic: `visit` gets the probability of each run when it ends. Returns the pruned
/// probability.
double walk(const std::function<void(const Coins&)>& program, const std::function<void(double)>& visit,
            double least = 0);

/// Half the sum of |a - b| over all outcomes.
double total_variation(const std::map<Outcome, double>& a, const std::map<Outcome, double>& b);

}  // namespace speclab::enumerate
