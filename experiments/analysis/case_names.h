#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace speclab {

/// A case of a run: its id, "speculative_sampling/draft=distilled/gamma=3", and the name of its strategy.
struct NamedCase {
  std::string id, strategy;
};

/// Short names of the cases of a run, [cases], such as "distilled γ 3": the strategy, its draft, and the
/// settings in which the cases of the run differ. The pages of results have the same names
/// (python/speclab/record.py). A case keeps its id if another case would have the same short name.
std::vector<std::string> short_names(const std::vector<NamedCase>& cases);
/// The same for "cases" of a summary.
std::vector<std::string> short_names(const nlohmann::json& cases);

}  // namespace speclab
