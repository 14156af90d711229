#pragma once

#include <cstdint>
#include <vector>

namespace speclab {

/// Which committed positions the rows of a forward attend to. For drafts that use the weights of the target
/// with a sparse cache: first and last positions (StreamingLLM: Xiao et al. 2024; MagicDec: Chen et al. 2024)
/// or chosen ones (TriForce: Sun et al. 2024).
///
/// A row always sees its own path in flight. Keys keep the rotation of their absolute positions. A layer with
/// a window shows the intersection: listed positions within the window of the row. A view of everything gives
/// the bits of a forward without a view. Rows are invariant: their bits depend on the listed positions and on
/// their own path, and not on other rows.
///
/// Rows that ran with a view have other K/V than those of the full cache. They may be committed: that is how
/// a draft model lives with a sparse cache of its own. On the target's session verify with a forward that
/// does not continue: it drops them and computes the rows again.
class CacheView {
 public:
  CacheView() = default;  ///< everything
  /// The first `first` and the last `last` committed positions.
  static CacheView ends(int first, int last);
  /// These positions, ascending and committed when a forward uses them.
  static CacheView list(std::vector<std::int32_t> positions);
  /// One view for each layer that the model runs, in their order; each is one of the forms above.
  static CacheView per_layer(std::vector<CacheView> layers);

  /// The view of layer `index` (into Model::layers()).
  const CacheView& of(int index) const;
  bool same_in_all_layers() const { return layers_.empty(); }
  /// The most positions that a layer of it shows when so many are committed.
  int most(int committed) const;
  /// Throws std::logic_error when it does not fit: layers of the model, committed positions.
  void check(int layers, int committed) const;

  // Of the view of one layer, when so many positions are committed.

  int count(int committed) const;
  /// Number of its positions below `position`.
  int rank(int committed, int position) const;
  /// Appends its positions, ascending.
  void append(int committed, std::vector<std::int32_t>& out) const;

 private:
  std::int32_t first_ = INT32_MAX, last_ = 0;
  bool listed_ = false;
  std::vector<std::int32_t> list_;
  std::vector<CacheView> layers_;
};

/// Keys of a row at `position`, which is `committed` or more, in a layer with that view and window (0: none).
/// Listed keys come first, by rank, then its path.
struct KeysOfRow {
  int first;  ///< lowest rank that it sees: the window hides those below
  int rank;   ///< its own rank, the last that it sees
  int count() const { return rank + 1 - first; }
};
KeysOfRow keys_of_row(const CacheView& view, int committed, int position, int window);

}  // namespace speclab
