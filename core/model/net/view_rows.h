#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/net/cache_view.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// A KeysInView whose arrays are in `numbers` of a forward, which goes to the backend as one upload.
struct StagedKeys {
  int count = 0;
  std::size_t slots = 0, ranks = 0, first = 0;  ///< offsets
  KeysInView in(const std::int32_t* staged) const {
    return {count, staged + slots, staged + ranks, staged + first};
  }
};

/// The rows of one sequence that attend with a view.
struct ViewedRows {
  const CacheView& view;
  int n, committed;
  std::size_t positions;        ///< offset in `numbers` of the rows' positions, [n]
  std::span<const int> run;     ///< indices into `layers` of the layers that the forward runs
  std::span<const int> layers;  ///< Model::layers()
  const ModelConfig& config;    ///< for the windows
};
/// Appends to `numbers` the arrays that attention needs in each layer of rows.run, and to `out` their
/// offsets, [run]. Layers with the same list and window share them.
void lay_out_view(const ViewedRows& rows, std::vector<std::int32_t>& numbers, std::vector<StagedKeys>& out);

}  // namespace speclab
