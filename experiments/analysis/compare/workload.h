#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace speclab {

/// Finds out whether two runs do the same work: the same prompts, seeds and settings. `base` and `fresh` are
/// config.json of run folders. Fields that an older version did not write are not compared. The exception is
/// an option with a value that its absence stands for (OptionVisitor::absent_means): a record without the
/// option counts as a record with this value.

/// The differences in prompts, seeds, shared settings, and settings of the cases that both runs have. One
/// difference is for example "seeds: [1], [1,2]".
std::vector<std::string> workload_differences(const nlohmann::json& base, const nlohmann::json& fresh);
/// The first four differences as one text, and how many more there are.
std::string shown_differences(const std::vector<std::string>& differences);

/// Returns true if the case has the same options, rule, draft and so on in both runs, and if the runs share
/// target, chat template and system message. A case that a run lacks counts as the same. The options
/// device_loop and device_graph are ignored, because they only say whether the host or the device drives the
/// steps and how the steps are queued.
bool same_case(const nlohmann::json& base, const nlohmann::json& fresh, const std::string& id);

/// What both runs decode: the ids of prompts with the same text and options, and the common seeds. Both sets
/// are empty if target, chat template or system message differ.
struct CommonWork {
  std::set<std::string> prompts;
  std::set<std::uint64_t> seeds;
};
CommonWork common_work(const nlohmann::json& base, const nlohmann::json& fresh);

}  // namespace speclab
