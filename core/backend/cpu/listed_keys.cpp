#include "core/backend/cpu/listed_keys.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab::cpu {

void list_keys(const RowsInFlight& rows, int first_query, int group, ListedKeys& keys, QueryBlock& block) {
  SPECLAB_CHECK(rows.committed_at == nullptr, "a view of {} keys cannot be combined with committed_at",
                rows.view->count);
  const KeysInView& view = *rows.view;
  const int first_row = first_query / group, last_row = (first_query + block.rows - 1) / group;
  keys.paths.clear();
  int begin = view.first[first_row], flight = rows.slots[first_row];
  block.last_slot = 0;
  for (int row = first_row; row <= last_row; ++row) {
    const std::int32_t *path = rows.paths + rows.path_begin[row],
                       *path_end = rows.paths + rows.path_begin[row + 1];
    keys.paths.insert(keys.paths.end(), view.slots, view.slots + view.count);
    keys.paths.insert(keys.paths.end(), path, path_end);
    begin = std::min(begin, view.first[row]);
    flight = std::min(flight, *path);
    block.last_slot = std::max(block.last_slot, path_end[-1]);
  }
  block.committed = 0;
  block.alike = view.count;
  block.begin = begin / kKeyBlock * kKeyBlock;
  const std::int32_t* path = keys.paths.data();
  for (int r = 0, row = first_row; r < block.rows; ++r) {
    const int of = (first_query + r) / group;
    for (; row < of; ++row) path += view.count + rows.path_begin[row + 1] - rows.path_begin[row];
    block.path[r] = path;
    block.path_length[r] = view.count + rows.path_begin[of + 1] - rows.path_begin[of];
    block.first[r] = view.first[of];
  }

  keys.ranges.clear();
  const auto add = [&](int from, int end) {
    if (keys.ranges.empty() || keys.ranges.back().end < from) keys.ranges.push_back({from, end});
    else keys.ranges.back().end = std::max(keys.ranges.back().end, end);
  };
  for (int rank = block.begin; rank < view.count; ++rank) {
    const int from = view.slots[rank] / kKeyBlock * kKeyBlock;
    add(from, from + kKeyBlock);
  }
  add(flight / kKeyBlock * kKeyBlock, padded(block.last_slot + 1, kKeyBlock));
  block.ranges = keys.ranges;
}

}  // namespace speclab::cpu
