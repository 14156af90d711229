#pragma once

#include <span>
#include <vector>

namespace speclab {

/// Chooses among drafters by a bandit algorithm: it learns only from the drafter that drafted. The reward of
/// a step is the number of tokens that it emitted divided by its predicted time (DrafterCosts), scaled so
/// that the largest possible reward is 1. The next drafter is the one with the largest
///
///     mean reward + sqrt(exploration ln(steps so far) / steps of this drafter),
///
/// or the first of several such drafters. Before that, each drafter is tried once, in order.
///
/// With a memory below 1, each step multiplies the rewards and the numbers of steps before it by the memory.
/// So a drafter that was not used for long is tried again, and the choice follows a text that changes.
///
/// The choice depends on earlier steps only.
///
/// Source: Hou et al. 2025, BanditSpec (arXiv 2505.15141), UCBSpec; the term under the root is that of UCB1
/// (Auer et al. 2002), where `exploration` is 2. With a memory it is the discounted UCB of Garivier and
/// Moulines 2011. Here a drafter that has nothing to draft in a step cannot be chosen in it.
class DrafterBandit {
 public:
  struct Settings {
    double exploration = 2;
    double memory = 1;  ///< above 0, at most 1
  };
  /// `best_rate`: tokens per ns of the largest possible reward (DrafterCosts::best_rate()).
  DrafterBandit(int drafters, double best_rate, Settings settings);
  void begin();  ///< starts a text: forgets all rewards
  /// Returns the drafter of the next step, or -1 if none is awake. awake[i]: whether drafter i has something
  /// to draft, [drafters].
  int choose(std::span<const char> awake) const;
  /// Learns from a step of `drafter` that emitted `tokens` tokens in `ns`.
  void observe(int drafter, double tokens, double ns);

 private:
  struct Arm {
    double reward = 0, steps = 0;  // sums
  };
  std::vector<Arm> arms_;  // [drafters]
  double best_rate_;
  Settings settings_;
  double steps_ = 0;
};

}  // namespace speclab
