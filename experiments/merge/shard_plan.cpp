#include "experiments/merge/shard_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Whether the case of a config carries memory from one prompt to the next.
bool carries_memory(const json& entry, const std::string& where) {
  const StrategyInfo* info = recorded_strategy(entry.at("strategy").get<std::string>());
  if (info == nullptr) {
    throw Error({.what = fmt::format("{}: case {}", where, entry.at("id").get<std::string>()),
                 .got = fmt::format("the strategy \"{}\", which this version does not know",
                                    entry.at("strategy").get<std::string>()),
                 .expected = "a strategy that is known to keep no memory",
                 .advice = "Merge the shards with the version of speclab that measured them."});
  }
  StrategyChoice choice(find_strategy(info->name));
  json own = json::object();
  for (const OptionInfo& option : describe_options(choice.fields())) {
    const json& options = entry.at("options");
    if (options.contains(option.name)) own[option.name] = options[option.name];
  }
  parse_options(choice.fields(), own, fmt::format("{}: case {}", where, entry.at("id").get<std::string>()));
  return choice.carries_memory();
}

[[noreturn]] void refuse_line(const std::string& where, std::string got, std::string expected) {
  throw Error({.what = where,
               .got = std::move(got),
               .expected = std::move(expected),
               .advice = "No shard of this run has such a line. Take it out of the folder."});
}

}  // namespace

ShardPlan::ShardPlan(const json& config, int shards, const std::string& where)
    : shards_(shards),
      repeats_(config.at("repeats").get<int>()),
      teacher_forced_(config.value("teacher_forced", false)) {
  for (const json& entry : config.at("cases")) {
    const auto id = entry.at("id").get<std::string>();
    cases_.push_back(id);
    reference_[id] = entry.at("reference").is_null() ? id : entry.at("reference").get<std::string>();
    if (shards > 1 && carries_memory(entry, where)) {
      throw Error({.what = where,
                   .got = fmt::format(
                       "shards of a run with {}, which carries memory from one prompt to the next", id),
                   .expected = "cases that decode every prompt on its own",
                   .advice = "Measure such cases without --shard."});
    }
  }
  for (const json& prompt : config.at("prompts")) {
    prompt_index_.emplace(prompt.at("id").get<std::string>(), prompts_.size());
    prompts_.push_back(prompt.at("id").get<std::string>());
  }
  for (const json& seed : config.at("seeds")) {
    seed_index_.emplace(seed.get<std::uint64_t>(), seeds_.size());
    seeds_.push_back(seed.get<std::uint64_t>());
  }
  const json calibration = config.value("calibration", json::object());
  if (calibration.value("enabled", false)) rounds_ = calibration.value("rounds", 0);
  const std::size_t most = std::max<std::size_t>(1, prompts_.size());
  if (static_cast<std::size_t>(shards) > most) {
    throw Error({.what = where,
                 .got = fmt::format("{} shards of {} prompts", shards, prompts_.size()),
                 .expected = "at most one shard for each prompt",
                 .advice = "A file of one of the folders was changed, or belongs to another run."});
  }
}

std::vector<std::string> ShardPlan::prompts_of(int shard) const {
  std::vector<std::string> of_shard;
  for (std::size_t i = static_cast<std::size_t>(shard) - 1; i < prompts_.size();
       i += static_cast<std::size_t>(shards_))
    of_shard.push_back(prompts_[i]);
  return of_shard;
}

int ShardPlan::shard_of(const std::string& prompt) const {
  return static_cast<int>(prompt_index_.at(prompt) % static_cast<std::size_t>(shards_)) + 1;
}

std::size_t ShardPlan::lines_of(int shard) const {
  return cases_.size() * prompts_of(shard).size() * seeds_.size() *
         static_cast<std::size_t>(std::max(repeats_, 0));
}

int ShardPlan::rounds_of(int shard) const {
  return static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(std::max(rounds_, 0)), lines_of(shard) + 1));
}

std::size_t ShardPlan::place_of(const std::string& prompt, std::uint64_t seed) const {
  return prompt_index_.at(prompt) * seeds_.size() + seed_index_.at(seed);
}

void ShardPlan::require_text(const std::string& where, const std::string& case_id, const std::string& prompt,
                             std::uint64_t seed) const {
  if (!reference_.contains(case_id))
    refuse_line(where, fmt::format("the case \"{}\"", case_id), "a case of config.json");
  if (!prompt_index_.contains(prompt))
    refuse_line(where, fmt::format("the prompt \"{}\"", prompt), "a prompt of config.json");
  if (!seed_index_.contains(seed))
    refuse_line(where, fmt::format("the seed {}", seed), "a seed of config.json");
}

void ShardPlan::require_line(const std::string& where, const LineKey& key) const {
  const auto& [case_id, prompt, seed, repeat] = key;
  require_text(where, case_id, prompt, seed);
  if (repeat < 0 || repeat >= repeats_)
    refuse_line(where, fmt::format("repeat {}", repeat), fmt::format("a repeat from 0 to {}", repeats_ - 1));
}

void ShardPlan::require_order(const std::string& where, int repeat, int order) const {
  const std::size_t of_repeat = cases_.size() * texts(), first = static_cast<std::size_t>(repeat) * of_repeat;
  if (order >= 0 && static_cast<std::size_t>(order) >= first &&
      static_cast<std::size_t>(order) < first + of_repeat)
    return;
  refuse_line(where, fmt::format("\"order\": {} in repeat {}", order, repeat),
              fmt::format("a number from {} to {}", first, first + of_repeat - 1));
}

}  // namespace speclab
