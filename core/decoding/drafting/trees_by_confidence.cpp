#include "core/decoding/drafting/trees_by_confidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kMakeTrees = "Make such a file with speclab optimize tree --by-confidence.";

/// A limit of the range of a tree.
double limit_of(const json& tree, const char* name, const std::string& place) {
  const auto found = tree.find(name);
  const double limit = found != tree.end() && found->is_number() ? found->get<double>() : -1;
  if (limit < 0 || limit > 1) {
    throw Error({fmt::format("{}/{}", place, name), found == tree.end() ? "nothing" : found->dump(),
                 "a confidence from 0 to 1", kMakeTrees});
  }
  return limit;
}

}  // namespace

TreesByConfidence::TreesByConfidence(TreeShape tree) : to_{1} { trees_.push_back(std::move(tree)); }

TreesByConfidence TreesByConfidence::read(const std::filesystem::path& path) {
  return of_json(read_json_file(path), path.string());
}

TreesByConfidence TreesByConfidence::of_json(const json& file, const std::string& where) {
  const json format = file.is_object() ? file.value("format", json()) : json();
  if (format == kTreeFormat) return TreeShape::of_json(file, where);
  if (format != kTreesFormat) {
    throw Error({where, "a file of another format",
                 fmt::format("\"format\": \"{}\" or \"{}\"", kTreeFormat, kTreesFormat),
                 "Make a tree file with speclab optimize tree."});
  }
  const auto trees = file.find("trees");
  if (trees == file.end() || !trees->is_array() || trees->empty() ||
      trees->size() > std::size_t{kMostTrees}) {
    const bool list = trees != file.end() && trees->is_array();
    throw Error({fmt::format("{}: /trees", where),
                 trees == file.end() ? "nothing"
                 : list              ? fmt::format("{} trees", trees->size())
                                     : trees->dump(),
                 fmt::format("a list of 1 to {} trees", kMostTrees), kMakeTrees});
  }
  TreesByConfidence out;
  double end = 0;
  for (std::size_t i = 0; i < trees->size(); ++i) {
    const json& tree = (*trees)[i];
    const std::string at = fmt::format("/trees/{}", i), place = fmt::format("{}: {}", where, at);
    const double from = limit_of(tree, "from", place), to = limit_of(tree, "to", place);
    if (from != end) {
      throw Error({fmt::format("{}/from", place), fmt::format("{}", from),
                   i == 0 ? "0, because the first range begins there"
                          : fmt::format("{}, where the range before it ends, because {}", end,
                                        from > end ? "ranges leave no gap" : "ranges do not overlap"),
                   kMakeTrees});
    }
    if (to <= from) {
      throw Error({fmt::format("{}/to", place), fmt::format("{}", to),
                   fmt::format("more than {}, where the range begins", from), kMakeTrees});
    }
    out.trees_.push_back(TreeShape::of_lists(tree, where, at, 0));
    out.to_.push_back(end = to);
  }
  if (end != 1) {
    throw Error({fmt::format("{}: /trees/{}/to", where, trees->size() - 1), fmt::format("{}", end),
                 "1, because the last range ends there", kMakeTrees});
  }
  if (out.nodes() == 1) {
    throw Error({fmt::format("{}: /trees", where), "trees without a drafted token",
                 "at least one tree that drafts a token", kMakeTrees});
  }
  return out;
}

int TreesByConfidence::number_at(double confidence) const {
  const auto after = std::ranges::upper_bound(to_, confidence);
  return std::min(static_cast<int>(after - to_.begin()), count() - 1);
}

int TreesByConfidence::nodes() const {
  int most = 1;
  for (const TreeShape& tree : trees_) most = std::max(most, tree.nodes());
  return most;
}

int TreesByConfidence::depth() const {
  int most = 0;
  for (const TreeShape& tree : trees_) most = std::max(most, tree.depth());
  return most;
}

void TreesByConfidence::require_children(int most) const {
  for (const TreeShape& tree : trees_) tree.require_children(most);
}

}  // namespace speclab
