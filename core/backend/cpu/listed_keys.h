#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/attention.h"

namespace speclab::cpu {

/// Arrays for the attention of one query block over part of the cache (core/backend/keys_in_view.h). Each
/// thread has one ListedKeys and reuses it.
struct ListedKeys {
  std::vector<std::int32_t> paths;
  std::vector<SlotRange> ranges;
};

/// Makes the query block `block` attend to the keys of rows.view. Each query gets a path that has the slots
/// of the view first and then the query's own rows in flight. Scores are computed only for the key blocks
/// that hold a slot of the view, and for the key blocks between the lowest and the highest slot of the rows
/// in flight. Queries are numbered row after row, `group` queries per row. `first_query` is the number of the
/// first query of the block. `keys` must live as long as `block`.
void list_keys(const RowsInFlight& rows, int first_query, int group, ListedKeys& keys, QueryBlock& block);

}  // namespace speclab::cpu
