#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/attention.h"

namespace speclab::cpu {

/// What the attention of a query block needs to know about a view of part of the cache. Each thread reuses
/// its own.
struct ListedKeys {
  std::vector<std::int32_t> paths;
  std::vector<SlotRange> ranges;
};

/// Makes `block` attend to the keys of rows.view: each query gets one path with the listed slots and then its
/// own rows in flight, and only blocks of keys that hold one of them are scored. `first_query` is the number
/// of the block's first query; `group` queries belong to a row. `keys` must live as long as the block.
void list_keys(const RowsInFlight& rows, int first_query, int group, ListedKeys& keys, QueryBlock& block);

}  // namespace speclab::cpu
