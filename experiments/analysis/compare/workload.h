#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace speclab {

/// Finds out whether two runs do the same work: the same prompts, seeds and settings. All arguments are
/// config.json of run folders. Fields that an older version did not write are not compared. The exception is
/// an option that defines the meaning of its absence (OptionVisitor::absent_means): an older record then has
/// this value.

/// The differences in prompts, seeds and settings over the cases that both runs have, such as "seeds: [1],
/// [1,2]".
std::vector<std::string> workload_differences(const nlohmann::json& base, const nlohmann::json& fresh);
/// The first four differences as one text, and how many more there are.
std::string shown_differences(const std::vector<std::string>& differences);

/// Returns true if the case has the same options, rule, draft and so on in both runs. The options device_loop
/// and device_graph are ignored, because they only say whether the host or the device drives the steps and
/// how the steps are queued.
bool same_case(const nlohmann::json& base, const nlohmann::json& fresh, const std::string& id);

/// What both runs decode: the ids of prompts with the same text and options, and the common seeds.
struct CommonWork {
  std::set<std::string> prompts;
  std::set<std::uint64_t> seeds;
};
CommonWork common_work(const nlohmann::json& base, const nlohmann::json& fresh);

}  // namespace speclab
