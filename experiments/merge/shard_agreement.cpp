#include "experiments/merge/shard_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/backend/backend_choice.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "experiments/run/run_folder.h"

namespace speclab {
namespace {

using nlohmann::json;

/// A field of environment.json that must be equal in all shards.
struct AgreedField {
  const char* pointer;
  bool of_cpu = false;  ///< describes the kind of CPU
};
constexpr AgreedField kAgreedFields[] = {
    {"/version"},
    {"/commit"},
    {"/dirty"},
    {"/compiler"},
    {"/build_type"},
    {"/binary_sha256"},
    {"/backend"},
    {"/numerics"},
    {"/threads"},
    {"/kernels"},
    {"/prefill"},
    {"/cpu/model", true},
    {"/cpu/flags", true},
    {"/cpu/cores_online", true},
    {"/cpu/cache/L2_bytes", true},
    {"/cpu/cache/L3_bytes", true},
    {"/gpu/driver"},
    {"/gpu/memory_bytes/total"},
    {"/gpu/power_limit_watts"},
    {"/gpu/ecc"},
    {"/step_costs"},
};
constexpr const char* kCosts = "/step_costs";

/// The values of a field, each with the folders that have it.
using Holders = std::vector<std::pair<json, std::vector<std::string>>>;

void hold(Holders& holders, const json& value, const std::string& folder) {
  if (value.is_null()) return;  // an older record, without this field
  const auto found = std::ranges::find_if(holders, [&](const auto& one) { return one.first == value; });
  if (found == holders.end()) holders.emplace_back(value, std::vector<std::string>{folder});
  else found->second.push_back(folder);
}

/// The entries of a list that not all folders have, such as the instruction sets of only some of the CPUs.
json without_common(const json& list, const Holders& holders) {
  json rest = json::array();
  for (const json& entry : list) {
    const bool common = std::ranges::all_of(holders, [&](const auto& one) {
      return std::find(one.first.begin(), one.first.end(), entry) != one.first.end();
    });
    if (!common) rest.push_back(entry);
  }
  return rest;
}

/// The values of a field with the folders of each: numerics: "f32" in a, b; "f32-kv16" in c.
std::string difference_text(const std::string& name, const Holders& holders) {
  const bool lists = std::ranges::all_of(holders, [](const auto& one) { return one.first.is_array(); });
  std::vector<std::string> parts;
  for (const auto& [value, folders] : holders) {
    const json shown = lists ? without_common(value, holders) : value;
    parts.push_back(fmt::format("{} in {}",
                                printable(shown.dump(-1, ' ', false, json::error_handler_t::replace), 60),
                                fmt::join(folders, ", ")));
  }
  return fmt::format("{}: {}", name, fmt::join(parts, "; "));
}

void require_one_config(std::span<const ShardFolder> folders) {
  for (const ShardFolder& folder : folders.subspan(1)) {
    const auto difference = config_difference(folders.front().config, folder.config);
    if (difference) {
      throw Error({.what = (folder.path / "config.json").string(),
                   .got = fmt::format("another config, {}: {} in {}, {} here", difference->where,
                                      difference->a, folders.front().path.string(), difference->b),
                   .expected = "shards of one run",
                   .advice = "Merge only folders that were measured with one config and the same --set and "
                             "--filter."});
    }
  }
  for (const ShardFolder& folder : folders.subspan(1)) {
    if (folder.shards == folders.front().shards) continue;
    throw Error({.what = folder.path.string(),
                 .got = fmt::format("a run in {} shards, where {} has {}", folder.shards,
                                    folders.front().path.string(), folders.front().shards),
                 .expected = "one division of the run",
                 .advice = "All shards need the same n in --shard i/n."});
  }
}

/// What differs in the fields of environment.json and in the hashes of the models.
struct Differences {
  std::vector<std::string> of_cpu, others;
  bool of_costs = false;
};

Differences differences_of(std::span<const ShardFolder> folders) {
  Differences out;
  const auto compare = [&](const std::string& name, bool of_cpu, const auto& value_of) {
    Holders holders;
    for (const ShardFolder& folder : folders)
      hold(holders, value_of(folder.environment), folder.path.string());
    if (holders.size() < 2) return false;
    (of_cpu ? out.of_cpu : out.others).push_back(difference_text(name, holders));
    return true;
  };
  for (const AgreedField& field : kAgreedFields) {
    const json::json_pointer at(field.pointer);
    const bool differs = compare(std::string(field.pointer).substr(1), field.of_cpu,
                                 [&](const json& environment) { return environment.value(at, json()); });
    out.of_costs = out.of_costs || (differs && field.pointer == std::string_view(kCosts));
  }
  // The device of the CPU backend is the name of the CPU.
  const bool on_cpu = std::ranges::all_of(folders, [](const ShardFolder& folder) {
    return is_cpu_backend(folder.environment.value("backend", ""));
  });
  compare("device", on_cpu, [](const json& environment) { return environment.value("device", json()); });
  std::set<std::string> roles;
  for (const ShardFolder& folder : folders) {
    const json models = folder.environment.value("models", json::object());
    for (const auto& [role, model] : models.items()) roles.insert(role);
  }
  for (const std::string& role : roles) {
    compare("SHA-256 of the model " + role, false, [&](const json& environment) {
      const json models = environment.value("models", json::object());
      return models.contains(role) ? models[role].value("sha256", json()) : json();
    });
  }
  return out;
}

}  // namespace

std::vector<std::string> require_one_run(std::span<const ShardFolder> folders, bool other_machine) {
  SPECLAB_CHECK(!folders.empty(), "no folders");
  require_one_config(folders);
  const Differences found = differences_of(folders);
  std::vector<std::string> refused = found.others;
  if (!other_machine) refused.insert(refused.end(), found.of_cpu.begin(), found.of_cpu.end());
  if (refused.empty()) return found.of_cpu;
  std::string advice;
  if (found.of_costs)
    advice =
        "Each shard measured a table of costs of its own. Measure the other shards again with --costs and "
        "the folder of the first one.";
  else if (found.others.empty())
    advice =
        "With --allow-other-machine shards from several kinds of CPU are merged, and the record says so.";
  throw Error({.what = "speclab merge",
               .got = fmt::format("differences in {}", fmt::join(refused, " | ")),
               .expected = "shards that one binary measured with the same models on one kind of machine",
               .advice = advice});
}

}  // namespace speclab
