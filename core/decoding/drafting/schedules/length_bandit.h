#pragma once

#include <vector>

namespace speclab {

struct StepCosts;

/// Returns [n]: the time of a step that drafts a chain of n tokens and verifies it, for n from 0 to
/// `longest`: t(n + 1) plus n forwards of the draft model over one row. Drafting takes no time if the table
/// has no times of a draft model.
std::vector<double> chain_step_ns(const StepCosts& costs, int longest);

/// Chooses the length of each draft by a bandit algorithm whose arms are the lengths 1 to `longest`. The
/// reward of a draft is the number of its step's tokens divided by the time of the step:
///
///     reward = (accepted + 1) / time(drafted),   scaled so that the largest possible reward is 1.
///
/// The time comes from a table and not from a clock, so a text follows from config, seed and table. The next
/// length is the one with the largest
///
///     mean reward + sqrt(exploration ln(drafts so far) / drafts of this length),
///
/// or the shortest of several such lengths. Before that, each length is tried once, from short to long.
///
/// Source: Hou et al. 2025, BanditSpec (arXiv 2505.15141), UCBSpec with draft lengths as arms. The term under
/// the root is that of UCB1 (Auer et al. 2002), where `exploration` is 2. The reward of the paper's code is
/// the measured throughput of a step.
class LengthBandit {
 public:
  /// `step_ns`: a result of chain_step_ns(), positive, with at least two entries.
  LengthBandit(std::vector<double> step_ns, double exploration);
  void begin();  ///< starts a text: forgets all rewards
  int choose() const;
  /// Learns from the draft that followed the choice `length`. It had `drafted` > 0 tokens, fewer than
  /// `length` if something else ended it.
  void observe(int length, int drafted, int accepted);

 private:
  struct Arm {
    double reward = 0;  // sum
    int drafts = 0;
  };
  std::vector<double> step_ns_;  // [longest + 1]
  double exploration_;
  double largest_ = 0;     // largest possible reward, before scaling
  std::vector<Arm> arms_;  // [longest], of the lengths 1, 2, ...
  int drafts_ = 0;
};

}  // namespace speclab
