#pragma once

#include "core/backend/backend.h"

namespace speclab {

/// Tells which committed keys (RowsInFlight) attention looks at. A backend that can do this implements this
/// class besides Backend; Model::reads_attention() says whether it does.
class AttentionReader {
 public:
  virtual ~AttentionReader() = default;
  /// Sets mass[j] to the weight that Backend::attention() gives to committed key j, averaged over the query
  /// heads and summed over the rows. The rest of the weights belongs to the rows' own paths. `qkv`
  /// must be rotated already (rope_and_store()), and rows.view must be null. `mass` is in host memory,
  /// [rows.committed]. Weights are computed in float from the stored keys, so they agree with those of
  /// attention() up to rounding. The order of their sums is fixed and does not depend on the threads.
  virtual void read_attention(const float* qkv, int heads, const KvStore& kv, int layer,
                              const RowsInFlight& rows, const AttentionForm& form, float* mass) = 0;
};

}  // namespace speclab
