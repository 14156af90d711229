#include "experiments/runner.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/backend/cuda/gpu.h"
#include "core/backend/cuda/gpu_state.h"
#include "core/backend/cuda/gpu_watch.h"
#include "core/base/error.h"
#include "core/measure/environment.h"
#include "core/measure/run_result.h"
#include "experiments/calibration.h"
#include "experiments/conversation.h"
#include "experiments/decoder.h"
#include "experiments/reference_check.h"
#include "experiments/run_folder.h"
#include "experiments/run_plan.h"
#include "experiments/summary.h"
#include "experiments/teacher.h"

namespace speclab {
namespace {

using nlohmann::json;

json environment_of(const RunRequest& request, const ModelSet& models) {
  json environment = describe_environment(request.command_line);
  Backend& backend = models.backend();
  environment["schema_version"] = kSchemaVersion;
  environment["backend"] = backend.name();
  environment["device"] = backend.device_name();
  environment["numerics"] = backend.numerics_class();
  environment["threads"] = backend.threads();
  if (backend.name() != "cpu") {
    environment["kernels"] = request.backend.kernels;
    environment["prefill"] = request.backend.prefill;
  }
  if (backend.name() == "cuda") environment["gpu"] = cuda::gpu_state(cuda::gpu_bus_id(request.backend.device));
  if (!request.resume) {  // a run that goes on keeps what was measured when it began
    const DeviceSpeed speed = backend.measure_speed();
    environment["read_bandwidth_bytes_per_second"] = speed.read_bytes_per_second;
    environment["peak_flops"] = speed.peak_flops;
  }
  environment["models"] = models.descriptions();
  return environment;
}

/// What was measured so far, and where more goes.
class Lines {
 public:
  Lines(const Experiment& experiment, const RunFolder& folder) : folder_(folder) {
    for (const CaseSpec& spec : experiment.cases) {
      for (LineRecord& line : read_case_lines(folder.path(), spec.id)) keep(std::move(line));
    }
  }
  bool done(const LineKey& key) const { return done_.contains(key); }
  /// The finished line of repeat 0; null when missing or failed.
  const LineRecord* text(const std::string& case_id, const std::string& prompt, std::uint64_t seed) const {
    const auto found = texts_.find({case_id, prompt, seed});
    return found == texts_.end() ? nullptr : &found->second;
  }
  void add(LineRecord line) {
    auto writer = writers_.find(line.case_id);
    if (writer == writers_.end())
      writer = writers_.emplace(line.case_id, JsonLinesWriter(folder_.case_file(line.case_id))).first;
    writer->second.append(to_json(line));
    keep(std::move(line));
  }
  RunOutcome outcome;

 private:
  void keep(LineRecord line) {
    done_.insert(key_of(line));
    if (!line.error.empty()) {
      ++outcome.failed;
      return;
    }
    if (line.matches_reference == false) ++outcome.unequal;
    if (line.repeat == 0) {
      const auto key = std::make_tuple(line.case_id, line.prompt, line.seed);
      texts_.emplace(key, std::move(line));
    }
  }

  const RunFolder& folder_;
  std::set<LineKey> done_;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, LineRecord> texts_;
  std::map<std::string, JsonLinesWriter> writers_;
};

/// Says once what makes times of a GPU doubtful.
class GpuWarnings {
 public:
  explicit GpuWarnings(Progress& progress) : progress_(progress) {}
  void look_at(const json& gpu) {
    if (gpu.value("other_processes", 0) > 0 && !std::exchange(shared_, true))
      progress_.note("warning: another process uses this GPU; times are not to be trusted");
    for (const auto& reason : gpu.value("slowed_by", json::array())) {
      if (told_.insert(reason.get<std::string>()).second)
        progress_.note(fmt::format("warning: this GPU is slowed by its {}", reason.get<std::string>()));
    }
  }

 private:
  Progress& progress_;
  bool shared_ = false;
  std::set<std::string> told_;
};

json to_json(const cuda::GpuUse& use) {
  json out = {{"seconds", use.seconds}, {"other_processes", use.other_processes}, {"slowed_by", use.slowed_by}};
  if (!use.energy.empty()) out["joules"] = use.joules, out["energy"] = use.energy;
  return out;
}

LineRecord measure(const Experiment& experiment, const ModelSet& models, Decoder& decoder, Calibration& calibration,
                   const PlannedLine& planned, const Lines& lines, cuda::GpuWatch* gpu) {
  const CaseSpec& spec = experiment.cases[static_cast<std::size_t>(planned.case_index)];
  const PromptSpec& prompt = experiment.prompts[static_cast<std::size_t>(planned.prompt_index)];
  LineRecord line;
  line.case_id = spec.id;
  line.prompt = prompt.id;
  line.category = prompt.category;
  line.seed = planned.seed;
  line.repeat = planned.repeat;
  line.order = planned.order;
  try {
    const bool is_reference = spec.reference.empty();
    const LineRecord* reference =
        lines.text(is_reference ? spec.id : spec.reference, prompt.id, planned.seed);
    if (!is_reference && reference == nullptr) {
      throw Error({.what = "nothing to compare with",
                   .got = fmt::format("no finished line of {}", spec.reference),
                   .expected = "",
                   .advice = ""});
    }
    if (gpu != nullptr) gpu->begin();
    line.turns = decoder.decode({.spec = &spec,
                                 .prompt = &prompt,
                                 .seed = planned.seed,
                                 .reference = reference,
                                 .after_step = calibration.drift_watch(line.drift)});
    if (gpu != nullptr) line.gpu = to_json(gpu->end());
    if (reference != nullptr) {  // a reference is held against its own first repeat
      const ReferenceCheck check = check_against(line, *reference, Decoder::generation_for(spec, prompt));
      line.matches_reference = check.matches;
      line.first_divergence = check.first_divergence;
    }
    if (planned.repeat > 0) {
      for (GenerationRecord& turn : line.turns) turn.context.clear();
    } else {
      for (const GenerationRecord& turn : line.turns) {
        const auto pieces = token_pieces(models, turn.tokens);
        line.pieces.insert(line.pieces.end(), pieces.begin(), pieces.end());
        line.text += (&turn == &line.turns.front() ? "" : "\u241e") + answer_text(models, turn.tokens);
      }
    }
  } catch (const Error& error) {
    line.error = error.what();
  }
  return line;
}

void warm_up(const Experiment& experiment, Decoder& decoder, const std::set<int>& cases, Progress& progress,
             const std::function<bool()>& interrupted) {
  constexpr int kTokens = 16;
  if (experiment.warmup == 0 || cases.empty()) return;
  progress.start("warm-up", static_cast<int>(cases.size()), 0);
  for (const int index : cases) {
    if (interrupted()) break;
    const CaseSpec& spec = experiment.cases[static_cast<std::size_t>(index)];
    for (int i = 0; i < experiment.warmup; ++i) {
      const PromptSpec& prompt = experiment.prompts[static_cast<std::size_t>(i) % experiment.prompts.size()];
      try {
        decoder.decode(
            {.spec = &spec, .prompt = &prompt, .seed = experiment.seeds.front(), .max_tokens = kTokens});
      } catch (const Error&) {
        break;  // its lines will say what is wrong
      }
    }
    progress.advance(spec.id);
  }
  progress.finish();
}

}  // namespace

RunOutcome run_experiment(const RunRequest& request, Progress& progress) {
  const Experiment& experiment = request.experiment;
  const auto& interrupted = request.interrupted;
  const std::vector<PlannedLine> plan = plan_lines(experiment, request.shard);
  check_models(experiment);
  RunFolder folder(request.out, request.resume, experiment.resolved(), request.command_line);
  progress.note(fmt::format("loading {}{}", experiment.target,
                            experiment.inflate.any() ? ", inflated to " + to_json(experiment.inflate).dump() : ""));
  ModelSet models(experiment.target, make_backend(request.backend),
                  experiment.chat_template ? experiment.chat_family : "plain", experiment.inflate,
                  experiment.target_from);
  for (const CaseSpec& spec : experiment.cases) {
    if (!spec.draft.empty()) models.add_draft(experiment.drafts.at(spec.draft));
  }
  Decoder decoder(experiment, models);
  const json environment = environment_of(request, models);
  if (!environment["optimised"].get<bool>())
    progress.note("warning: this binary is not optimised; its times mean nothing");
  GpuWarnings warnings(progress);
  std::optional<cuda::GpuWatch> watch;
  if (environment.contains("gpu")) {
    const json& gpu = environment["gpu"];
    warnings.look_at({{"other_processes", gpu.value("compute_processes", 1) - 1}, {"slowed_by", gpu.value("slowed_by", json::array())}});
    watch.emplace(cuda::gpu_bus_id(request.backend.device));
    if (!watch->problem().empty()) watch.reset();
  }
  folder.begin(environment);
  Lines lines(experiment, folder);

  std::vector<PlannedLine> todo;
  std::set<int> cases;
  for (const PlannedLine& line : plan) {
    const std::string& id = experiment.cases[static_cast<std::size_t>(line.case_index)].id;
    if (lines.done(
            {id, experiment.prompts[static_cast<std::size_t>(line.prompt_index)].id, line.seed, line.repeat}))
      continue;
    todo.push_back(line);
    cases.insert(line.case_index);
  }
  progress.note(fmt::format("{}: {} cases, {} prompts, {} lines, {} to do, into {}", experiment.name,
                            experiment.cases.size(), experiment.prompts.size(), plan.size(), todo.size(),
                            folder.path().string()));

  const auto text_of = [&](const std::string& id, const std::string& prompt, std::uint64_t seed) {
    return lines.text(id, prompt, seed);
  };
  Calibration calibration(experiment, models, decoder, request.shard, plan.size(), folder.path(), text_of);
  std::size_t done = plan.size() - todo.size();
  warm_up(experiment, decoder, cases, progress, interrupted);
  const auto calibrate = [&](const PlannedLine& next) {
    while (!interrupted() && calibration.due(done))
      calibration.measure(experiment.prompts[static_cast<std::size_t>(next.prompt_index)], interrupted);
  };

  progress.start("lines", static_cast<int>(plan.size()), static_cast<int>(done));
  for (const PlannedLine& planned : todo) {
    calibrate(planned);
    if (interrupted()) break;
    LineRecord line = measure(experiment, models, decoder, calibration, planned, lines, watch ? &*watch : nullptr);
    if (calibration.rounds() > 0) line.calibration_rounds = calibration.rounds();
    if (!line.gpu.is_null()) warnings.look_at(line.gpu);
    const std::string id = line.case_id;
    if (!line.error.empty())
      progress.note(fmt::format("failed: {} prompt {}: {}", id, line.prompt, line.error));
    if (line.matches_reference == false) {
      progress.note(fmt::format("not equal: {} prompt {} differs from its reference at token {}", id,
                                line.prompt, line.first_divergence.value_or(-1)));
    }
    lines.add(std::move(line));
    progress.advance(id);
    ++done;
  }
  calibrate(plan.back());
  progress.finish();

  if (experiment.teacher_forced && !interrupted()) {
    progress.note("teacher-forced estimates");
    TeacherForcing teacher(experiment, models, text_of);
    teacher.run(folder.path() / "teacher.jsonl", interrupted);
  }
  write_json_file(folder.path() / "summary.json", summarise_run(folder.path()));
  RunOutcome outcome = lines.outcome;
  outcome.interrupted = interrupted();
  return outcome;
}

}  // namespace speclab
