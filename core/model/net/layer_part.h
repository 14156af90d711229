#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace speclab {

/// Selects the layers of a model that one forward runs. With it the target drafts for itself, on its own
/// session and without a second cache. There are two forms:
///
/// Early exit (LayerSkip: Elhoushi et al. 2024; Kangaroo: Liu et al. 2024). Draft forwards run until(E),
/// level by level with Feed::continues. The session keeps the K/V of layers [0, E) and the hidden states at E
/// of all rows in flight (fed, but not committed). One forward of the same rows with from(E) then runs the
/// rest [E, L) of the L layers. Logits and cache have the same bits as after one forward of these rows
/// through all layers. Rows may exit at different layers (CALM: Schuster et al. 2022). New rows may exit
/// earlier than the rows in flight. If the last rows in flight stopped at E, between(E, F) runs layers [E, F)
/// for them, and they then count as stopped at F. So no row stops at a later layer than a row in flight
/// before it, and each row finds the K/V of its path in every layer that it runs.
///
/// Layer skip (Draft & Verify: Zhang et al. 2024; SWIFT: Xia et al. 2024). Draft forwards run only(layers)
/// and write K/V of these layers only. The verifying forward runs all layers and does not continue: it drops
/// the drafted rows and computes its own in their slots, so nothing of the draft stays in the cache.
///
/// In both forms drafted rows attend to the committed K/V of the target. Their logits come from the final
/// norm and the output head. To get only hidden states, use Feed::taps. Work counts each forward with the
/// layers that it ran. Rows in flight cannot be committed until all layers have run for them. Until then, a
/// feed can continue them only with the same LayerPart or, after an early exit, with an earlier exit.
class LayerPart {
 public:
  LayerPart() = default;  ///< all layers
  /// The first `exit` layers. A forward throws Error unless 0 < exit < layers of the model.
  static LayerPart until(int exit) { return {Kind::kUntil, 0, exit, {}}; }
  /// The rest of a forward that stopped at `exit`. Tokens and parents of the feed are those of all rows in
  /// flight, in order; Feed::continues is false. If some drafted tokens are not in flight yet, feed them
  /// first with until(exit), without logits rows. Taps are possible from layer `exit` on.
  static LayerPart from(int exit) { return {Kind::kFrom, exit, 0, {}}; }
  /// Takes rows that stopped at `exit` on to layer `next`. Tokens and parents of the feed are those of all
  /// rows in flight that stopped at `exit`, in order; these must be the last rows in flight, and the rows
  /// before them must have stopped at layer `next` or later. Feed::continues is false. A forward throws Error
  /// unless 0 < exit < next < layers of the model. Taps are possible from layer `exit` on.
  static LayerPart between(int exit, int next) { return {Kind::kBetween, exit, next, {}}; }
  /// The given layers, numbered as in Model::Options. A forward throws Error if the list is empty, if the
  /// numbers do not ascend strictly, or if the model does not run all of these layers. The list must exist
  /// until the forward returns.
  static LayerPart only(std::span<const int> layers) { return {Kind::kOnly, 0, 0, layers}; }

  bool operator==(const LayerPart& other) const {
    return kind_ == other.kind_ && begin_ == other.begin_ && end_ == other.end_ &&
           std::ranges::equal(only_, other.only_);
  }
  bool early_exit() const { return end_ > 0; }  ///< stops before the last layer and keeps hidden states
  bool rest() const { return begin_ > 0; }      ///< goes on with rows that stopped earlier
  int begin() const { return begin_; }          ///< the layer at which a rest begins; 0: no rest
  int end() const { return end_; }              ///< the layer at which an early exit stops; 0: no early exit
  /// Sets `out` to the layers to run, as indices into `layers` (the layers that the model runs). Throws Error
  /// for an exit or a list that does not fit, as until() and only() say.
  void indices(std::span<const int> layers, const std::string& model, std::vector<int>& out) const;

 private:
  enum class Kind { kAll, kUntil, kFrom, kBetween, kOnly };
  LayerPart(Kind kind, int begin, int end, std::span<const int> only)
      : kind_(kind), begin_(begin), end_(end), only_(only) {}
  Kind kind_ = Kind::kAll;
  int begin_ = 0, end_ = 0;
  std::span<const int> only_;
};

}  // namespace speclab
