#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/run/run_plan.h"

namespace speclab {

/// What each shard of a run contains, as far as config.json says it. Neither models nor prompt files are
/// needed, so shards can be merged on a machine that has none of them.
class ShardPlan {
 public:
  /// `config`: config.json as read_run_config() returns it. `shards`: the n of --shard i/n. `where` names the
  /// file in errors. Throws Error for fewer prompts than shards. With two shards or more, also throws Error
  /// for a case that carries memory from one prompt to the next, and for a strategy that this version does
  /// not know, because it may carry memory.
  ShardPlan(const nlohmann::json& config, int shards, const std::string& where);

  int shards() const { return shards_; }
  const std::vector<std::string>& cases() const { return cases_; }  ///< ids, in the order of the config
  /// The reference of a case; the case itself for a reference.
  const std::string& reference_of(const std::string& case_id) const { return reference_.at(case_id); }
  bool teacher_forced() const { return teacher_forced_; }
  /// The prompts of a shard (from 1) in the order of the config: every n-th from the shard's number on.
  std::vector<std::string> prompts_of(int shard) const;
  const std::vector<std::uint64_t>& seeds() const { return seeds_; }

  int shard_of(const std::string& prompt) const;  ///< the shard, from 1, that a planned prompt belongs to
  std::size_t lines_of(int shard) const;          ///< number of lines of a shard
  int rounds_of(int shard) const;                 ///< number of calibration rounds of a shard
  /// Place of a text among all texts in the order of prompts and seeds, which is the order of teacher.jsonl.
  std::size_t place_of(const std::string& prompt, std::uint64_t seed) const;

  /// Throws Error when no shard of the run has a line with this key. `where` names the line.
  void require_line(const std::string& where, const LineKey& key) const;
  /// Throws Error when no shard of the run has a text of this case, prompt and seed.
  void require_text(const std::string& where, const std::string& case_id, const std::string& prompt,
                    std::uint64_t seed) const;
  /// Throws Error when a line of this repeat cannot have this number in the order of the whole run. Repeats
  /// follow one another in that order.
  void require_order(const std::string& where, int repeat, int order) const;

 private:
  std::size_t texts() const { return prompts_.size() * seeds_.size(); }

  int shards_ = 1, repeats_ = 1, rounds_ = 0;
  bool teacher_forced_ = false;
  std::vector<std::string> cases_, prompts_;
  std::vector<std::uint64_t> seeds_;
  std::map<std::string, std::string> reference_;     // by case
  std::map<std::string, std::size_t> prompt_index_;  // place in the config
  std::map<std::uint64_t, std::size_t> seed_index_;
};

}  // namespace speclab
