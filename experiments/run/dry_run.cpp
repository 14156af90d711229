#include "experiments/run/dry_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/options_json.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/drafting/schedules/controller.h"
#include "core/measure/environment.h"
#include "core/model/files/checkpoint.h"
#include "experiments/run/device/given_speed.h"
#include "experiments/run/progress.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr double kWeightBytes = 2;  // weights are converted to bf16 when they are loaded

/// The value of the option that names a file. Empty when the strategy has no such option or the option is not
/// set.
std::string file_of(const CaseSpec& spec) {
  const StrategyInfo& info = spec.strategy.info();
  const std::string name(info.needs_file.empty() ? info.may_name_file : info.needs_file);
  if (name.empty()) return "";
  StrategyChoice choice = spec.strategy;
  return echo_options(choice.fields()).at(name);
}

/// The file of the controller of the strategy's schedule; "" if it has none.
std::string controller_of(StrategyChoice strategy) {
  const json options = echo_options(strategy.fields());
  const ScheduleInfo* schedule = recorded_schedule(options.value("schedule", ""));
  return schedule != nullptr && schedule->needs_controller ? options.value("controller", "") : "";
}

/// The paths of all files, each with the place to get the file from ("" when the config does not say).
std::map<std::string, std::string> files_of(std::span<const Experiment> experiments) {
  std::map<std::string, std::string> files;
  for (const Experiment& experiment : experiments) {
    if (!experiment.markov) files.emplace(experiment.target, experiment.target_from);
    for (const CaseSpec& spec : experiment.cases) {
      for (const std::string& name : spec.drafts) {
        const DraftSpec& draft = experiment.drafts.at(name);
        if (!draft.model.empty()) files.emplace(draft.model, draft.from);
      }
      if (const std::string file = file_of(spec); !file.empty()) files.emplace(file, "");
      if (const std::string file = controller_of(spec.strategy); !file.empty()) files.emplace(file, "");
    }
  }
  return files;
}

}  // namespace

void require_files(std::span<const Experiment> experiments) {
  std::vector<std::string> missing, places;
  for (const auto& [path, from] : files_of(experiments)) {
    if (path_exists(path)) continue;
    missing.push_back(path);
    if (!from.empty()) places.push_back(fmt::format("the model {}. Download it to {}", from, path));
  }
  if (missing.empty()) return;
  throw Error({.what = fmt::format("{}", fmt::join(missing, ", ")),
               .got = "no such file or directory",
               .expected = places.empty() ? "the files that the config names"
                                          : fmt::format("{}", fmt::join(places, ", ")),
               .advice = places.empty()
                             ? "Paths are relative to the current directory. scripts/get_model.sh "
                               "fetches the model of the quickstart, and scripts/models/draft_128.sh makes "
                               "the draft of width 128."
                             : "A model is a folder (config.json, tokenizer.json and "
                               "model.safetensors). You can give the path of your copy with --set."});
}

void require_controller(const StrategyChoice& strategy, std::span<const std::string> drafts,
                        const json& models) {
  const std::string file = controller_of(strategy);
  if (file.empty()) return;
  const Controller controller = Controller::read(file);
  const std::string target = "target";
  for (const std::string& role : drafts.empty() ? std::span(&target, 1) : drafts) {
    controller.require_draft(models.at(role).at("name").get<std::string>(),
                             models.at(role).at("sha256").get<std::string>());
  }
}

void require_controllers(const Experiment& experiment, const json& models) {
  for (const CaseSpec& spec : experiment.cases) require_controller(spec.strategy, spec.drafts, models);
}

std::string time_estimate(const Experiment& experiment, const Shard& shard, const BackendChoice& choice) {
  if (is_device(choice)) return "No estimate of the time: a dry run does not open the GPU.";
  if (experiment.markov) return "No estimate of the time: the target is a toy.";
  Checkpoint checkpoint = Checkpoint::open(experiment.target);
  if (experiment.inflate.any()) checkpoint.inflate(experiment.inflate);
  const double bytes = kWeightBytes * weight_count(checkpoint);
  double tokens = 0;
  for (const PlannedLine& line : plan_lines(experiment, shard)) {
    const PromptSpec& prompt = experiment.prompts[static_cast<std::size_t>(line.prompt_index)];
    const int most = experiment.cases[static_cast<std::size_t>(line.case_index)].generation.max_tokens;
    tokens += static_cast<double>(prompt.turns.size()) * prompt.options.value("max_tokens", most);
  }
  const std::optional<DeviceSpeed> given = given_speed();
  const double bandwidth = given ? given->read_bytes_per_second
                                 : measure_read_bandwidth(make_backend(choice)->threads()),
               reading = bytes / bandwidth;
  return fmt::format(
      "Rough estimate of the time: {} for at most {:.0f} tokens of {:.2f} ms each (the time to read {:.0f} "
      "MB "
      "of weights at the {:.1f} GB/s {}). It leaves out the cost of drafts, the gain from "
      "accepted "
      "tokens, prefill, texts that end early, warm-up and calibration.",
      duration_text(tokens * reading), tokens, 1e3 * reading, 1e-6 * bytes, 1e-9 * bandwidth,
      given ? "of SPECLAB_DEVICE_SPEED" : "just measured");
}

}  // namespace speclab
