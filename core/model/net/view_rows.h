#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/net/cache_view.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// KeysInView whose arrays stand in `numbers` of a forward, which goes to the backend in one piece.
struct StagedKeys {
  int count = 0;
  std::size_t slots = 0, ranks = 0, first = 0;  ///< offsets
  KeysInView in(const std::int32_t* staged) const {
    return {count, staged + slots, staged + ranks, staged + first};
  }
};

/// Rows of one sequence whose attention has a view.
struct ViewedRows {
  const CacheView& view;
  int n, committed;
  std::size_t positions;        ///< offset in `numbers` of the positions of the rows, [n]
  std::span<const int> run;     ///< indices into `layers` of the layers that the forward runs
  std::span<const int> layers;  ///< Model::layers()
  const ModelConfig& config;    ///< knows the windows
};
/// Appends to `numbers` what attention must know in each layer of rows.run, and to `out` where it stands,
/// [run]. Layers with the same list and window share it.
void lay_out_view(const ViewedRows& rows, std::vector<std::int32_t>& numbers, std::vector<StagedKeys>& out);

}  // namespace speclab
