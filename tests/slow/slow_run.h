#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/measure/run_result.h"

namespace speclab::fixtures {

/// Runs `speclab ARGUMENTS` (shell words) in the checkout; returns its exit code, or -1.
int run_speclab(const std::string& arguments);

/// Makes build/slow/prompts.datastore and build/slow/prompts.ngrams, which configs of tests/slow use. Each
/// prompt of configs/prompts/speclab.jsonl is one document of them. Also makes build/slow/heads: random heads
/// over the most frequent tokens of the prompts.
void make_files_of_prompts();

/// An experiment of tests/slow on the real models, run by the real binary in a process of its own. Its
/// progress goes to this test's output, its record to <build>/slow/NAME. From the environment
/// (scripts/test_slow.sh sets it):
///   SPECLAB_SLOW_RESUME  not empty: resumes the existing record; otherwise measures again
///   SPECLAB_SLOW_TRIAL   not empty: two prompts, 16 tokens, only to see that a test works
struct SlowRun {
  /// tests/slow/NAME.json.
  explicit SlowRun(const std::string& name);
  /// A config that the test has made; it is written beside the records.
  SlowRun(const std::string& name, const nlohmann::json& experiment);

  bool trial = false;
  int exit_code = -1;                                    ///< of speclab run
  nlohmann::json config;                                 ///< config.json as resolved; null when there is none
  std::map<std::string, std::vector<LineRecord>> lines;  ///< by case id

  const nlohmann::json& prompts() const { return config["prompts"]; }
  /// The line of a prompt (repeat 0, the only seed); null when missing.
  const LineRecord* line(const std::string& case_id, const std::string& prompt) const;

 private:
  void run(const std::string& name, const std::string& file);
};

/// Counts of drafted tokens over lines.
struct DraftCounts {
  int steps = 0, emitted = 0, drafted = 0, tested = 0, accepted = 0, rejected = 0;
  void add(const LineRecord& line);
  DraftCounts& operator+=(const DraftCounts& other);
};

}  // namespace speclab::fixtures
