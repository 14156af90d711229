#pragma once

#include <cstdint>

namespace speclab {

/// Part of the committed keys of a sequence, for attention over a sparse cache. Arrays are memory of the
/// backend. A row sees the listed keys and then its own path. Every sum takes its keys by rank: entry r of
/// the list has rank r, the path follows. Where all committed keys are listed, ranks are positions, and the
/// bits are those of attention without a list. Rotations stay those of the positions.
struct KeysInView {
  int count = 0;                        ///< listed keys
  const std::int32_t* slots = nullptr;  ///< [count], ascending, below RowsInFlight::committed
  const std::int32_t* ranks = nullptr;  ///< [n], rank of row i itself: count + its depth
  /// [n], lowest rank that row i sees, at most its own. The caller has intersected the window of the layer
  /// with the list here; attention does not look at AttentionForm::window.
  const std::int32_t* first = nullptr;
};

}  // namespace speclab
