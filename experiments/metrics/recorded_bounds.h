#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/decoding/loop/judged_step.h"
#include "core/theory/step_bounds.h"

/// The file bounds.jsonl of a run (results/SCHEMA.md): for each step of repeat 0, how many tokens it emitted,
/// and bounds on the tokens that other verifiers could get from its draft.
namespace speclab {

struct RecordedStep {
  int accepted = 0;  ///< drafted tokens that were emitted
  int emitted = 0;
  theory::StepBounds bounds;
  std::optional<theory::PairedOutcome> paired;  ///< of chains; absent in older records
};

/// Computes the bounds of a step and, for a chain, how many tokens the rules `rejection` and `block` keep
/// with the same coins. Costs a few passes over the vocabulary for each drafted token.
RecordedStep recorded_step(const JudgedStep& step);

/// The line of one prompt and seed of a case.
nlohmann::json bounds_line(const std::string& case_id, const std::string& prompt, std::uint64_t seed,
                           const std::vector<RecordedStep>& steps);

/// Reads the steps of all cases: case -> prompt -> steps, one seed after the other. Of two lines with the
/// same case, prompt and seed the first counts. Empty if there is no such file. Throws Error for a line of
/// another form.
std::map<std::string, std::map<std::string, std::vector<RecordedStep>>> read_bounds(
    const std::filesystem::path& file);

}  // namespace speclab
