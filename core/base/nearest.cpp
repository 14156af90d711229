#include "core/base/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace speclab {
namespace {

template <class Name>
std::string nearest(std::string_view name, std::span<const Name> known) {
  std::string best;
  int best_distance = 1 << 20;
  for (const std::string_view candidate : known) {
    const int distance = edit_distance(name, candidate);
    const int longer = static_cast<int>(std::max(name.size(), candidate.size()));
    if (3 * distance <= longer && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // The last three rows of the table of optimal string alignment. A swap of neighbours reads the oldest row.
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string_view> known) {
  return nearest(name, known);
}
std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  return nearest(name, known);
}

std::string suggest(std::string_view name, std::span<const std::string> known) {
  const std::string near = nearest_name(name, known);
  if (!near.empty()) return fmt::format("Did you mean \"{}\"?", near);
  if (known.empty()) return "There is nothing to choose from here.";
  return fmt::format("Known are: {}.", fmt::join(known, ", "));
}

}  // namespace speclab
