#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace speclab {

/// Whether two runs decode the same things. All configs are those of run folders (config.json). What an older
/// version did not write is not compared.

/// The prompts, seeds and settings in which they differ, for the cases that both have: "seeds: [1], [1,2]".
std::vector<std::string> workload_differences(const nlohmann::json& base, const nlohmann::json& fresh);

/// Does a case of both have the same options, rule, draft and so on? device_loop and device_graph do not
/// count: they say how the work is queued.
bool same_case(const nlohmann::json& base, const nlohmann::json& fresh, const std::string& id);

/// What both decode: the ids of the prompts that have the same text and options, and the seeds.
struct CommonWork {
  std::set<std::string> prompts;
  std::set<std::uint64_t> seeds;
};
CommonWork common_work(const nlohmann::json& base, const nlohmann::json& fresh);

}  // namespace speclab
