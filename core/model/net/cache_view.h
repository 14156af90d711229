#pragma once

#include <cstdint>
#include <vector>

namespace speclab {

/// Selects the committed positions that the rows of a forward attend to. It is for drafts that use the
/// target's weights with a sparse cache. Such a draft sees the first and last positions (StreamingLLM: Xiao
/// et al. 2024; MagicDec: Sadhukhan et al. 2024) or chosen ones (TriForce: Sun et al. 2024).
///
/// A view never hides a row or its ancestors in flight (fed, but not committed). Keys keep the rotation of
/// their absolute positions. In a layer with a window, a row sees the listed positions that are also in its
/// window. A view of all positions gives the bits of a forward without a view. Rows are invariant: their bits
/// depend on the listed positions and on their own path, and not on other rows.
///
/// Rows that ran with a view have other K/V than rows that saw the full cache. A draft model with its own
/// sparse cache may commit them. On the target's session, verify with a forward that does not set
/// Feed::continues. That forward drops these rows and computes them again.
class CacheView {
 public:
  CacheView() = default;  ///< all committed positions
  /// The first `first` and the last `last` committed positions.
  static CacheView ends(int first, int last);
  /// A list of positions. They must ascend. All of them must be committed when a forward uses the list.
  static CacheView list(std::vector<std::int32_t> positions);
  /// One view for each layer that the model runs, in order. Each has one of the forms above.
  static CacheView per_layer(std::vector<CacheView> layers);

  /// The view of layer `index` (into Model::layers()).
  const CacheView& of(int index) const;
  bool same_in_all_layers() const { return layers_.empty(); }
  /// The number of positions in the largest view of a layer, when `committed` positions are committed.
  int most(int committed) const;
  /// Throws Bug when the view does not fit the number of layers or committed positions.
  void check(int layers, int committed) const;

  // The next functions are for the view of one layer, when `committed` positions are committed.

  /// The number of positions in the view.
  int count(int committed) const;
  /// The number of positions of the view that are below `position`.
  int rank(int committed, int position) const;
  /// Appends the positions of the view, ascending.
  void append(int committed, std::vector<std::int32_t>& out) const;

 private:
  std::int32_t first_ = INT32_MAX, last_ = 0;
  bool listed_ = false;
  std::vector<std::int32_t> list_;
  std::vector<CacheView> layers_;
};

/// The keys that a row at `position` >= `committed` sees in a layer with this view and window (0: no window).
/// Keys are numbered by rank: positions of the view come first, then the row's path.
struct KeysOfRow {
  int first;  ///< lowest rank that the row sees; the window hides lower ones
  int rank;   ///< the row's own rank, the highest that it sees
  int count() const { return rank + 1 - first; }
};
KeysOfRow keys_of_row(const CacheView& view, int committed, int position, int window);

}  // namespace speclab
