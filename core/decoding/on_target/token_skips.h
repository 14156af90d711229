#pragma once

#include <span>
#include <string>
#include <vector>

namespace speclab {

/// A list of sets of layers of the target. For each drafted token, chooses the set that its row skips: the
/// more probable the previous token of the draft is, the later in the list is the set. The first token of a
/// draft gets the first set.
///
/// The choice depends only on tokens before the one that is drawn from the row. So the row is a distribution
/// q like any other. A row that skipped a layer has no K/V there. So when the set changes, the tokens of the
/// draft are fed again with the new set, in one forward.
class TokenSkips {
 public:
  /// `sets` are lists of layers to skip, as texts: "1,3,5", or "" for none. `bounds` are ascending
  /// probabilities; there is one bound less than sets. After a drafted token of probability c, the number of
  /// the set, from 0, is the number of bounds that are at most c. `layers` are the layers that the target
  /// runs. Throws Error, which begins with `where`, for a text that is no such list, a layer that is not in
  /// `layers`, layers or bounds that do not ascend, a set of all layers, or another number of bounds.
  TokenSkips(const std::vector<std::string>& sets, std::vector<double> bounds, std::span<const int> layers,
             const std::string& where);

  int sets() const { return static_cast<int>(kept_.size()); }
  /// The layers that a row runs with this set.
  std::span<const int> kept(int set) const { return kept_[static_cast<std::size_t>(set)]; }
  /// The number of the set after a drafted token of this probability.
  int after(double probability) const;

 private:
  std::vector<std::vector<int>> kept_;
  std::vector<double> bounds_;
};

}  // namespace speclab
