#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/net/cache_view.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// A KeysInView whose arrays are part of `numbers` (Model::Workspace), which a forward sends to the backend
/// as one upload.
struct StagedKeys {
  int count = 0;
  std::size_t slots = 0, ranks = 0, first = 0;  ///< offsets in `numbers`
  KeysInView in(const std::int32_t* staged) const {
    return {count, staged + slots, staged + ranks, staged + first};
  }
};

/// The rows of one sequence that attend through a CacheView.
struct ViewedRows {
  const CacheView& view;
  int n, committed;
  std::size_t positions;        ///< offset in `numbers` of the rows' positions, [n]
  std::span<const int> run;     ///< indices into `layers` of the layers that the forward runs
  std::span<const int> layers;  ///< Model::layers()
  const ModelConfig& config;    ///< for the windows
};
/// Appends to `numbers` the arrays that attention needs in each layer of rows.run. Appends their offsets to
/// `out`, [run]. Layers that share one CacheView object share the arrays of slots and ranks. If they also
/// have the same window, they share all arrays.
void lay_out_view(const ViewedRows& rows, std::vector<std::int32_t>& numbers, std::vector<StagedKeys>& out);

}  // namespace speclab
