#include "experiments/merge/unfinished.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace speclab {
namespace {

/// A text: case, prompt and seed.
using TextKey = std::tuple<std::string, std::string, std::uint64_t>;

/// What a folder has, by shard.
struct Contents {
  std::map<int, std::size_t> lines, rounds;
  std::set<TextKey> finished;  ///< lines of repeat 0 that did not fail
  std::set<EstimateKey> estimates;
};

Contents contents_of(const ShardFolder& folder, const ShardPlan& plan) {
  Contents out;
  for (const auto& [id, lines] : folder.lines) {
    for (const ShardLine& line : lines) {
      const auto& [case_id, prompt, seed, repeat] = line.key;
      ++out.lines[plan.shard_of(prompt)];
      if (repeat == 0 && !line.failed) out.finished.emplace(case_id, prompt, seed);
    }
  }
  for (const auto& [key, text] : folder.rounds) ++out.rounds[key.first];
  for (const ShardText& line : folder.teacher)
    out.estimates.emplace(line.kind, line.case_id, line.prompt, line.seed);
  return out;
}

/// Kinds and cases of the estimates of a run.
std::set<std::pair<std::string, std::string>> estimated_cases(std::span<const ShardFolder> folders) {
  std::set<std::pair<std::string, std::string>> found;
  for (const ShardFolder& folder : folders) {
    for (const ShardText& line : folder.teacher) found.emplace(line.kind, line.case_id);
  }
  return found;
}

std::size_t missing_estimates(const Contents& contents, const ShardPlan& plan, int shard,
                              const std::set<std::pair<std::string, std::string>>& estimated) {
  std::size_t missing = 0;
  for (const std::string& prompt : plan.prompts_of(shard)) {
    for (const std::uint64_t seed : plan.seeds()) {
      for (const auto& [kind, case_id] : estimated) {
        const bool possible = contents.finished.contains({case_id, prompt, seed}) &&
                              contents.finished.contains({plan.reference_of(case_id), prompt, seed});
        if (possible && !contents.estimates.contains({kind, case_id, prompt, seed})) ++missing;
      }
    }
  }
  return missing;
}

std::size_t count_of(const std::map<int, std::size_t>& counts, int shard) {
  const auto found = counts.find(shard);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::vector<UnfinishedShard> unfinished_shards(std::span<const ShardFolder> folders, const ShardPlan& plan) {
  std::vector<UnfinishedShard> out;
  const auto estimated = estimated_cases(folders);
  for (const ShardFolder& folder : folders) {
    const Contents contents = contents_of(folder, plan);
    for (const int shard : folder.holds) {
      std::vector<std::string> missing;
      const std::size_t lines = plan.lines_of(shard), lines_there = count_of(contents.lines, shard);
      if (lines_there < lines) missing.push_back(fmt::format("{} of {} lines", lines - lines_there, lines));
      const auto rounds = static_cast<std::size_t>(plan.rounds_of(shard));
      const std::size_t rounds_there = count_of(contents.rounds, shard);
      if (rounds_there < rounds)
        missing.push_back(fmt::format("{} of {} calibration rounds", rounds - rounds_there, rounds));
      if (plan.teacher_forced() && !folder.has_teacher) {
        missing.emplace_back("the estimates on finished texts");
      } else if (const std::size_t estimates = missing_estimates(contents, plan, shard, estimated);
                 estimates > 0) {
        missing.push_back(fmt::format("{} estimates on finished texts", estimates));
      }
      if (!missing.empty())
        out.push_back({shard, &folder, fmt::format("{} are missing", fmt::join(missing, " and "))});
    }
  }
  return out;
}

}  // namespace speclab
