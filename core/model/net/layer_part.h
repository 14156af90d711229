#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace speclab {

/// Which layers of a model one forward runs. With it the target drafts for itself, on its own session and
/// without a second cache. Two forms:
///
/// Early exit (LayerSkip: Elhoushi et al. 2024; Kangaroo: Liu et al. 2024). Draft forwards run until(E),
/// level by level with Feed::continues. The session keeps the K/V of layers [0, E) and the hidden states at E
/// of all rows in flight. One forward of the same rows with from(E) then runs layers [E, L) from there.
/// Logits and cache have the bits of one forward of these rows through all layers.
///
/// Layer skip (Draft & Verify: Zhang et al. 2024; SWIFT: Xia et al. 2024). Draft forwards run only(layers)
/// and write K/V of these layers only. The verifying forward runs all layers and does not continue: it drops
/// the drafted rows and computes its own in their slots, so nothing of the draft stays in the cache.
///
/// In both forms drafted rows attend to the committed K/V of the target. Their logits come from the final
/// norm and the head; hidden states alone come from Feed::taps. Work counts each forward with the layers that
/// it ran. While a layer of a row in flight has not run, the rows cannot be committed and only feeds with the
/// same part can continue them.
class LayerPart {
 public:
  LayerPart() = default;  ///< all layers
  /// The first `exit` layers. 0 < exit < layers of the model, else a forward throws Error.
  static LayerPart until(int exit) { return {Kind::kUntil, exit, {}}; }
  /// The rest of a forward that stopped at `exit`. Tokens and parents of the feed are those of all rows in
  /// flight, in their order; Feed::continues is false. Drafted tokens that have not been fed yet go through
  /// until(exit) first, without rows. Taps are those of layers from the exit on.
  static LayerPart from(int exit) { return {Kind::kFrom, exit, {}}; }
  /// Layers by number as in Model::Options, ascending, each once, all of them layers that the model runs;
  /// else a forward throws Error. The list is read while the forward is called.
  static LayerPart only(std::span<const int> layers) { return {Kind::kOnly, 0, layers}; }

  bool operator==(const LayerPart& other) const {
    return kind_ == other.kind_ && exit_ == other.exit_ && std::ranges::equal(only_, other.only_);
  }
  bool early_exit() const { return kind_ == Kind::kUntil; }
  bool rest() const { return kind_ == Kind::kFrom; }
  /// The layer at which an early exit leaves and the rest begins; 0 for the other forms.
  int exit() const { return exit_; }
  /// Indices into `layers` (those that the model runs) of the layers to run. Throws Error as said above.
  void indices(std::span<const int> layers, const std::string& model, std::vector<int>& out) const;

 private:
  enum class Kind { kAll, kUntil, kFrom, kOnly };
  LayerPart(Kind kind, int exit, std::span<const int> only) : kind_(kind), exit_(exit), only_(only) {}
  Kind kind_ = Kind::kAll;
  int exit_ = 0;
  std::span<const int> only_;
};

}  // namespace speclab
