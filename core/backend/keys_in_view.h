#pragma once

#include <cstdint>

namespace speclab {

/// A list of committed keys of a sequence, for attention over a sparse cache. Its arrays are in memory of the
/// backend. A row sees the listed keys and then its own path. Sums are ordered by rank: entry r of the list
/// has rank r, and the path follows. If the list has all committed keys, ranks are positions, and attention
/// gives the same bits without a list. Rotary embeddings always use the positions. n is RowsInFlight::n.
struct KeysInView {
  int count = 0;                        ///< listed keys
  const std::int32_t* slots = nullptr;  ///< [count], ascending, below RowsInFlight::committed
  const std::int32_t* ranks = nullptr;  ///< [n], rank of row i: count + its position - committed
  /// [n], lowest rank that row i sees, at most its own rank. The caller derives it from the window of the
  /// layer; attention ignores AttentionForm::window.
  const std::int32_t* first = nullptr;
};

}  // namespace speclab
