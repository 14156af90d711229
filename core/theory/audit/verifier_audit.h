#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/theory/audit/toy_step.h"

// An audit of an acceptance rule. The rule judges every draft on small tables, once for every outcome of its
// coins. So the law of the emitted tokens is exact, and it is compared with the law of the target.

namespace speclab::audit {

using enumerate::Draws;
using enumerate::Outcome;
using enumerate::Shape;
using enumerate::World;

/// How much is enumerated.
struct Settings {
  int max_gamma = 3;  ///< chains of 1 to max_gamma drafted tokens, and trees of at most this depth
  int max_vocab = 4;  ///< vocabularies of 2 to max_vocab tokens; for trees at most 4, 3 or 2, by their size
  int tables = 2;     ///< number of tables for each combination of kind (Rows), vocabulary and Draws
  unsigned seed = 1;  ///< the tables are a function of the seed
  double tolerance = 1e-9;  ///< largest error that counts as rounding
};

/// The shortest history after which the emitted tokens do not follow the target.
struct Failure {
  std::string table;             ///< "zeros, 3 tokens, sampled draft"
  Outcome history;               ///< emitted tokens after the pending token; may be empty
  std::vector<double> found;     ///< law of the next token after this history, [vocab]
  std::vector<double> expected;  ///< the target's row after this history, [vocab]
};

/// The law of the tokens that steps emit on one table. `length` is the depth of the shape + 1. If a step
/// emits fewer tokens, its text is completed with draws from the target. The tokens of later steps would have
/// the same law as these draws if the verifier is lossless.
struct StepLaw {
  double first_error = 0;  ///< largest |P(x) - p(x)| over the first token x
  double joint_error = 0;  ///< largest |P(text) - p(text)| over all texts of `length` tokens
  double tau = 0;          ///< expected tokens of a step
  double cut = 0;          ///< total probability of the runs that were cut
  long runs = 0;
  std::optional<Failure> failure;  ///< its `table` is empty
};

/// Enumerates the steps of a rule on one table. A run is cut when its probability falls below `least`.
StepLaw enumerate_steps(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
                        const RuleOptions& options, double tolerance, double least = 0);

/// The largest E[tau] of any lossless verifier that uses p and q on the path of a chain of `gamma` tokens
/// drawn from q[0]. Block verification reaches it: 1 + sum over i and paths x_1..x_i of q(x_1..x_i) rho_i,
/// where rho_i = min(1, rho_{i-1} p(x_i) / q(x_i)) and rho_0 = 1 (Sun et al. 2024, arXiv 2403.10444).
double best_tokens_of_chain(const World& world, int gamma);

/// What the audit of one rule found for drafts of one shape, over all tables.
struct Finding {
  std::string shape;  ///< "chain 2", "tree 2 1" (children of a node at each depth)
  int tables = 0;
  long runs = 0;
  double first_error = 0, joint_error = 0;  ///< largest over the tables
  double cut = 0;                           ///< largest over the tables
  std::optional<double> golden_tau;         ///< E[tau] of a sampled draft on the golden pair (toy_step.h)
  std::optional<double> golden_optimum;     ///< for chains: best_tokens_of_chain() of the golden pair
  std::optional<double> excess;    ///< sampled chains: E[tau] - best_tokens_of_chain(), largest of all tables
  std::optional<Failure> failure;  ///< on the first failed table; absent if only its `excess` is too large
  bool exact = true;               ///< no table failed
};

/// Why the rule cannot be enumerated, as a sentence; empty if it can.
std::string not_enumerable(const AcceptanceRule& rule);

/// Options with which the rules lenience, uniform_b and distillspec_* are lossless.
RuleOptions lossless_options();

/// Audits a rule for which not_enumerable() is empty. A rule that draws until it accepts
/// (AcceptanceRule::draws_until_accepted) gets tables in which q is near p, and its long runs are cut.
std::vector<Finding> audit(const AcceptanceRule& rule, const RuleOptions& options, const Settings& settings);

}  // namespace speclab::audit
