#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/theory/step_costs.h"

/// Searches for layers that a target should leave out when it drafts for itself (Draft & Verify: Zhang et al.
/// 2024, arXiv 2309.08168, Section 3.3). The paper searches by Bayesian optimisation of the time per token,
/// which it measures for each set of layers. This search takes the costs as given, the same for all layers,
/// and predicts the speedup of a set from its acceptance and these costs. So the result does not depend on
/// times that are measured during the search. The search needs no Bayesian optimiser: it removes one layer
/// after the other, then tries random changes.
namespace speclab::theory {

/// Acceptance and predicted speed of one set of skipped layers.
struct SkipChoice {
  std::vector<int> skip;           ///< ascending
  std::vector<double> acceptance;  ///< [depth - 1], P(token at this depth is accepted | it is tested)
  int gamma = 0;                   ///< the best draft length, from 1 to the number of measured depths
  double tau = 1;                  ///< expected tokens per step at this gamma
  double c = 1;                    ///< time of a draft forward / time of a target forward of one row
  double speedup = 0;              ///< tau / (gamma c + t(gamma + 1)); may be below 1
};

/// What the search needs to know about times.
struct SkipCosts {
  RowTimes target;       ///< times of a full forward by number of rows
  double per_layer = 0;  ///< time of one layer / time of a full forward of one row. All layers cost the same.
};

struct SkipSearchOptions {
  int evaluations = 300;   ///< at most this many sets are evaluated
  int tries = 8;           ///< layers that are tried in each round after the first
  std::uint64_t seed = 1;  ///< of the random changes
};

/// Returns the acceptance by depth of a draft that skips these layers, or none to end the search.
using SkipAcceptance = std::function<std::optional<std::vector<double>>(std::span<const int> skip)>;

/// The predicted speed of a set with this acceptance, at its best gamma. Throws Error if `acceptance` is
/// empty or has numbers outside [0, 1].
SkipChoice skip_choice(std::vector<int> skip, std::vector<double> acceptance, const SkipCosts& costs);

struct SkipSearchResult {
  SkipChoice best;
  std::vector<SkipChoice> by_size;  ///< the best set of each evaluated size, ascending
  int evaluations = 0;
  bool ended = true;  ///< false: the acceptance function stopped the search early
};

/// First removes one layer after the other: the first round tries every layer, later rounds try the `tries`
/// layers that were best when they were last tried. The rounds end when the predicted speedup has not grown
/// for several rounds. Then random changes of the best set (one layer more, one less, or one exchanged) are
/// kept when they are faster, until all evaluations are used up or many consecutive changes lead to known
/// sets. The result follows from the arguments alone. Throws Error for fewer than two layers, evaluations < 1
/// and tries < 1.
SkipSearchResult search_skips(std::span<const int> layers, const SkipCosts& costs,
                              const SkipSearchOptions& options, const SkipAcceptance& acceptance);

}  // namespace speclab::theory
