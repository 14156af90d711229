#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "core/measure/rounds.h"
#include "core/theory/processes/acceptance_process.h"

namespace speclab::theory {

/// The acceptance of a run with several prompts: each prompt draws an AcceptanceProcess of its own (its
/// random effect), and its rounds follow this process. Prompts are independent of each other.
class PromptProcess {
 public:
  /// All prompts follow the same process. Throws Error for a bad process.
  PromptProcess(AcceptanceProcess process);
  /// A prompt draws its alpha from the beta law with this mean; its rounds are i.i.d. with this alpha.
  /// `correlation` is the correlation of the outcomes of two tests of one prompt: var(alpha) / (mean (1 -
  /// mean)). The beta law has a + b = 1 / correlation - 1. Throws Error unless mean
  /// and correlation are inside (0, 1).
  static PromptProcess beta(double mean, double correlation);
  /// A prompt draws one of these processes with probability weights[i] / sum of weights; without weights all
  /// are equally probable. Throws Error for no process, and for weights that are negative, sum to 0 or do not
  /// match the processes.
  static PromptProcess mixture(std::vector<AcceptanceProcess> parts, std::vector<double> weights = {});
  /// The bootstrap of a recorded run, [prompts][rounds]. A prompt draws one of the recorded prompts, and each
  /// of its rounds is a draw from the rounds of that prompt. Uses only rounds whose draft has the largest
  /// length of the run and that were not cut by the end of a text. The process says nothing about drafts
  /// longer than most_gamma(). Throws Error if there is no such round, or if no round drafts a token.
  static PromptProcess recorded(std::span<const PromptRounds> run);

  /// The process of one prompt; u is uniform in [0, 1).
  AcceptanceProcess draw(double u) const;
  /// The longest draft that the process knows: the longest of a recorded run, otherwise kMaxGamma.
  int most_gamma() const { return most_gamma_; }

  /// Exact E[tau] of a round, if each prompt has the same number of rounds. With a beta law it is
  /// 1 + sum_{i=1}^{gamma} E[alpha^i] and E[alpha^i] = prod_{j<i} (a + j) / (a + b + j).
  double expected_tokens(int gamma) const { return of_round(gamma).tau(); }
  /// Expected counts of a round, if each prompt has the same number of rounds.
  RoundCounts of_round(int gamma) const;
  /// Expected counts of the rounds of one prompt whose text has exactly `tokens` tokens. tau() and alpha()
  /// are what a run of many such prompts measures. Hard prompts have more rounds, so they weigh more than in
  /// of_round(). For a beta law this is an integral over alpha; its relative error is below 1e-7.
  RoundCounts of_text(int gamma, int tokens) const;

 private:
  struct Beta {
    double a, b;
  };
  struct Mixture {
    std::vector<AcceptanceProcess> parts;
    std::vector<double> weights;  // sum 1
  };
  explicit PromptProcess(std::variant<Beta, Mixture> effect);
  int checked(int gamma) const;

  std::variant<Beta, Mixture> effect_;
  int most_gamma_;
};

}  // namespace speclab::theory
