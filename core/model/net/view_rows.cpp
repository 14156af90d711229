#include "core/model/net/view_rows.h"

namespace speclab {

void lay_out_view(const ViewedRows& rows, std::vector<std::int32_t>& numbers, std::vector<StagedKeys>& out) {
  const std::size_t begin = out.size();
  const auto view_of = [&](std::size_t i) { return &rows.view.of(rows.run[i]); };
  const auto window_of = [&](std::size_t i) {
    return rows.config.window(rows.layers[static_cast<std::size_t>(rows.run[i])]);
  };
  for (std::size_t i = 0; i < rows.run.size(); ++i) {
    const CacheView& view = *view_of(i);
    const int window = window_of(i);
    // `list` is the index of an earlier layer with the same view. `same` is the index of an earlier layer
    // with the same view and the same window. Each is i if there is no such layer.
    std::size_t list = i, same = i;
    for (std::size_t j = 0; j < i && same == i; ++j) {
      if (view_of(j) != &view) continue;
      list = j;
      if (window_of(j) == window) same = j;
    }
    if (same < i) {
      out.push_back(out[begin + same]);
      continue;
    }
    StagedKeys keys{view.count(rows.committed)};
    const auto each_row = [&](const auto& number) {
      const std::size_t at = numbers.size();
      for (std::size_t r = 0; r < static_cast<std::size_t>(rows.n); ++r)
        numbers.push_back(number(keys_of_row(view, rows.committed, numbers[rows.positions + r], window)));
      return at;
    };
    if (list < i) {
      keys.slots = out[begin + list].slots;
      keys.ranks = out[begin + list].ranks;
    } else {
      keys.slots = numbers.size();
      view.append(rows.committed, numbers);
      keys.ranks = each_row([](const KeysOfRow& row) { return row.rank; });
    }
    keys.first = each_row([](const KeysOfRow& row) { return row.first; });
    out.push_back(keys);
  }
}

}  // namespace speclab
