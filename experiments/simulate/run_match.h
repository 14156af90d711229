#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

/// Whether two runs can be combined: a run and the run that stands for a device, or a trace and the run that
/// it is compared with. Names of models and ids of prompts say too little, because another model may have the
/// same name.
namespace speclab {

/// The part of a run that can be combined with another run.
struct MatchedRun {
  RunData run;                     ///< without the cases with a draft model that differs in the other run
  std::vector<std::string> notes;  ///< a sentence for each case that was left out
};

/// Compares the models of a run with those in `environment`, the environment.json of the run in the folder
/// `other`. Two models are equal if they have the same SHA-256, layers and inflated shape. A model
/// without a SHA-256 in one of the records is not compared. Throws Error if the targets differ. Leaves out
/// each case with a draft model that differs.
MatchedRun with_models_of(const RunData& run, const nlohmann::json& environment, const std::string& other);

/// The part of a run that a simulated device can price. If the device is the folder of a run, the models of
/// both runs are compared (with_models_of). Other devices price all of the run.
MatchedRun with_models_of_device(const RunData& run, const std::string& device);

/// Throws Error if a prompt of both runs has different texts in them, or different token ids in its first
/// turn. The error names the folder `other`. The ids differ if the tokenizer or the chat template does. A
/// prompt whose text or ids one of the records does not keep is not compared.
void require_same_prompts(const RunData& run, const RunData& there, const std::string& other);

/// For people: each case of `measured` that has a reference and is not among `compared`, and why a replay of
/// `trace` does not predict it: "CASE: not replayed; the trace has no drafter speculative_sampling with draft
/// small".
std::vector<std::string> not_replayed(const RunData& trace, const RunData& measured,
                                      const std::set<std::string>& compared);

/// The drafters of a trace: "speculative_sampling with draft distilled, prompt_lookup". "none" without any.
std::string traced_drafters(const RunData& trace);

}  // namespace speclab
