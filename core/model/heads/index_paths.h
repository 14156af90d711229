#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace speclab {

/// A static tree that a head may come with (Cai et al. 2024, Medusa: "choices"). Each node is a path of ranks
/// from the pending token: {0, 2} is the third best token of the second head, below the best token of the
/// first head. Ranks count from 0.
using IndexPaths = std::vector<std::vector<int>>;

/// Reads such a tree from JSON, [[0], [0, 2], ...]. `where` names the list in errors. Throws Error unless it
/// is a list of 1 to kMostIndexPaths lists, each of 1 to kLongestIndexPath ranks below kMostIndexPaths. Does
/// not check whether the paths form a tree.
IndexPaths read_index_paths(const nlohmann::json& list, const std::string& where);

inline constexpr int kMostIndexPaths = 1023, kLongestIndexPath = 16;

}  // namespace speclab
