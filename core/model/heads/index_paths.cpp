#include "core/model/heads/index_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kAdvice = "Write a tree like [[0], [0, 0], [1]].";

bool is_path(const json& entry) {
  return entry.is_array() && !entry.empty() && entry.size() <= std::size_t{kLongestIndexPath} &&
         std::all_of(entry.begin(), entry.end(),
                     [](const json& rank) { return rank.is_number_unsigned() && rank < kMostIndexPaths; });
}

}  // namespace

IndexPaths read_index_paths(const json& list, const std::string& where) {
  if (!list.is_array() || list.empty() || list.size() > std::size_t{kMostIndexPaths}) {
    throw Error({where,
                 list.is_array() ? fmt::format("{} paths", list.size())
                                 : fmt::format("a JSON {}", json_type_name(list)),
                 fmt::format("a list of 1 to {} paths of ranks", kMostIndexPaths), kAdvice});
  }
  IndexPaths paths;
  for (const json& entry : list) {
    if (!is_path(entry)) {
      throw Error(
          {fmt::format("{}/{}", where, paths.size()), entry.dump(),
           fmt::format("a list of 1 to {} ranks from 0 to {}", kLongestIndexPath, kMostIndexPaths - 1),
           kAdvice});
    }
    paths.push_back(entry.get<std::vector<int>>());
  }
  return paths;
}

}  // namespace speclab
