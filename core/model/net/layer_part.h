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
/// of all rows in flight. One forward of the same rows with from(E) then runs the remaining layers [E, L).
/// Logits and cache have the same bits as after one forward of these rows through all layers.
///
/// Layer skip (Draft & Verify: Zhang et al. 2024; SWIFT: Xia et al. 2024). Draft forwards run only(layers)
/// and write K/V of these layers only. The verifying forward runs all layers and does not continue: it drops
/// the drafted rows and computes its own in their slots, so nothing of the draft stays in the cache.
///
/// In both forms drafted rows attend to the committed K/V of the target. Their logits come from the final
/// norm and the output head. To get only hidden states, use Feed::taps. Work counts each forward with the
/// layers that it ran. Rows in flight cannot be committed until all layers have run for them. Until then,
/// only feeds with the same LayerPart can continue them.
class LayerPart {
 public:
  LayerPart() = default;  ///< all layers
  /// The first `exit` layers. A forward throws Error unless 0 < exit < layers of the model.
  static LayerPart until(int exit) { return {Kind::kUntil, exit, {}}; }
  /// The rest of a forward that stopped at `exit`. Tokens and parents of the feed are those of all rows in
  /// flight, in order; Feed::continues is false. If some drafted tokens are not in flight yet, feed them
  /// first with until(exit), without logits rows. Taps are possible from layer `exit` on.
  static LayerPart from(int exit) { return {Kind::kFrom, exit, {}}; }
  /// The given layers, numbered as in Model::Options. A forward throws Error if the list is empty, if the
  /// numbers do not ascend strictly, or if the model does not run all of these layers. The list must exist
  /// until the forward returns.
  static LayerPart only(std::span<const int> layers) { return {Kind::kOnly, 0, layers}; }

  bool operator==(const LayerPart& other) const {
    return kind_ == other.kind_ && exit_ == other.exit_ && std::ranges::equal(only_, other.only_);
  }
  bool early_exit() const { return kind_ == Kind::kUntil; }
  bool rest() const { return kind_ == Kind::kFrom; }
  /// The layer at which an early exit ends and the rest begins; 0 for the other forms.
  int exit() const { return exit_; }
  /// Sets `out` to the layers to run, as indices into `layers` (the layers that the model runs). Throws Error
  /// for an exit or a list that does not fit, as until() and only() say.
  void indices(std::span<const int> layers, const std::string& model, std::vector<int>& out) const;

 private:
  enum class Kind { kAll, kUntil, kFrom, kOnly };
  LayerPart(Kind kind, int exit, std::span<const int> only) : kind_(kind), exit_(exit), only_(only) {}
  Kind kind_ = Kind::kAll;
  int exit_ = 0;
  std::span<const int> only_;
};

}  // namespace speclab
