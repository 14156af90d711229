#include "experiments/run/runner.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/backend/device_status.h"
#include "core/base/error.h"
#include "core/measure/environment.h"
#include "core/measure/run_result.h"
#include "experiments/run/calibration.h"
#include "experiments/run/case_memory.h"
#include "experiments/run/conversation.h"
#include "experiments/run/cost_table.h"
#include "experiments/run/decoder.h"
#include "experiments/run/device/given_speed.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/dry_run.h"
#include "experiments/run/reference_check.h"
#include "experiments/run/resume.h"
#include "experiments/run/run_folder.h"
#include "experiments/run/run_lines.h"
#include "experiments/run/run_plan.h"
#include "experiments/metrics/recorded_bounds.h"
#include "experiments/metrics/summary.h"
#include "experiments/run/teacher.h"

namespace speclab {
namespace {

using nlohmann::json;

/// True if the CPU has chosen the numerics class (--numerics auto).
bool cpu_chose_numerics(const RunRequest& request, const Backend& backend) {
  return request.backend.numerics == "auto" && is_cpu_backend(backend.name());
}

json environment_of(const RunRequest& request, const ModelSet& models) {
  json environment = describe_environment(request.command_line);
  Backend& backend = models.backend();
  environment["schema_version"] = kSchemaVersion;
  environment["backend"] = backend.name();
  environment["device"] = backend.device_name();
  environment["numerics"] = backend.numerics_class();
  if (cpu_chose_numerics(request, backend)) environment["numerics_reason"] = auto_cpu_numerics().reason;
  environment["threads"] = backend.threads();
  if (is_device(request.backend)) {
    environment["kernels"] = name_of(request.backend.kernels);
    environment["prefill"] = name_of(request.backend.prefill);
  }
  environment["options"] = to_json(request.backend);
  if (const DeviceStatus* status = backend.device_status()) environment["gpu"] = status->state();
  if (!request.resume) {  // a resumed run keeps the values that were measured when it began
    const std::optional<DeviceSpeed> given = given_speed();
    const DeviceSpeed speed = given ? *given : backend.measure_speed();
    if (given) environment["speed_given"] = true;
    environment["read_bandwidth_bytes_per_second"] = speed.read_bytes_per_second;
    environment["peak_flops"] = speed.peak_flops;
  }
  environment["models"] = models.descriptions();
  if (request.shard.n > 1) environment["shard"] = {request.shard.i, request.shard.n};
  return environment;
}

/// The lists of draft models of the cases whose strategy needs the table of costs.
std::set<std::vector<std::string>> drafts_with_costs(const Experiment& experiment) {
  std::set<std::vector<std::string>> lists;
  for (const CaseSpec& spec : experiment.cases) {
    if (spec.strategy.needs_costs()) lists.insert(spec.drafts);
  }
  return lists;
}

/// The table of costs of a run, null when no case needs one. A resumed run takes the table that it recorded.
json cost_table_for(const RunRequest& request, const ModelSet& models, Progress& progress) {
  const std::vector<CaseSpec>& cases = request.experiment.cases;
  constexpr int kRepeats = 5;
  if (std::none_of(cases.begin(), cases.end(),
                   [](const CaseSpec& spec) { return spec.strategy.needs_costs(); }))
    return nullptr;
  if (request.resume) return read_cost_table(request.out);
  if (!request.costs_of.empty()) return read_cost_table(request.costs_of);
  progress.note("measuring the costs from which the lengths of drafts are chosen");
  std::map<std::string, const Model*> drafts;
  for (const std::vector<std::string>& names : drafts_with_costs(request.experiment)) {
    for (const std::string& name : names) drafts[name] = models.draft(name).get();
  }
  const bool own_drafts = std::any_of(cases.begin(), cases.end(), [](const CaseSpec& spec) {
    return spec.strategy.needs_costs() && spec.strategy.info().drafts_with_target;
  });
  return measure_cost_table(*models.target(), drafts, own_drafts, kRepeats);
}

/// Warns once about each condition that makes times of a GPU doubtful.
class GpuWarnings {
 public:
  explicit GpuWarnings(Progress& progress) : progress_(progress) {}
  void look_at(const json& gpu) {
    const json others = gpu.value("other_processes", json());  // null: unknown
    if (others.is_number() && others > 0 && !std::exchange(shared_, true))
      progress_.note("warning: another process uses this GPU; do not trust the times");
    for (const auto& reason : gpu.value("slowed_by", json::array())) {
      if (told_.insert(reason.get<std::string>()).second)
        progress_.note(fmt::format("warning: this GPU is slowed by its {}", reason.get<std::string>()));
    }
  }
  void look_at_line(const LineRecord& line) {
    if (!line.gpu.is_null()) look_at(line.gpu);
    for (const GenerationRecord& turn : line.turns) {
      if (!turn.device_graph_problem.empty() && told_.insert(turn.device_graph_problem).second)
        progress_.note("warning: " + turn.device_graph_problem);
    }
  }

 private:
  Progress& progress_;
  bool shared_ = false;
  std::set<std::string> told_;
};

json to_json(const DeviceUse& use) {
  json out = {{"seconds", use.seconds},
              {"other_processes", use.other_processes ? json(*use.other_processes) : json()},
              {"slowed_by", use.slowed_by}};
  if (!use.energy.empty()) out["joules"] = use.joules, out["energy"] = use.energy;
  return out;
}

/// What the measurement of a line needs besides the line's plan.
struct Bench {
  const Experiment& experiment;
  const ModelSet& models;
  Decoder& decoder;
  Calibration& calibration;
  const RunLines& lines;
  CaseMemory& memory;
  DeviceWatch* gpu;         ///< null when no GPU can be watched
  JsonLinesWriter* bounds;  ///< null when no bounds are wanted
  const std::function<bool()>& interrupted;
};

/// Returns the reference's line if the strategy drafts from that line's text, else null. Throws Error if the
/// reference has failed and this line needs it, either to draft from it or to be compared with it.
const LineRecord* reference_for(const Bench& bench, const CaseSpec& spec, const LineRecord& line) {
  if (spec.reference.empty()) return nullptr;
  const bool needed = spec.strategy.info().needs_reference;
  if (bench.lines.failed({spec.reference, line.prompt, line.seed, 0}) &&
      (needed || line.promise != Promise::nothing)) {
    throw Error({.what = "nothing to compare with",
                 .got = fmt::format("no finished line of {}", spec.reference),
                 .expected = "",
                 .advice = ""});
  }
  return needed ? bench.lines.text(spec.reference, line.prompt, line.seed) : nullptr;
}

/// Measures a line. The result is finished or failed; null when the measurement was interrupted.
std::optional<LineRecord> measure(const Bench& bench, const PlannedLine& planned) {
  const CaseSpec& spec = bench.experiment.cases[static_cast<std::size_t>(planned.case_index)];
  const PromptSpec& prompt = bench.experiment.prompts[static_cast<std::size_t>(planned.prompt_index)];
  LineRecord line;
  line.case_id = spec.id;
  line.prompt = prompt.id;
  line.category = prompt.category;
  line.seed = planned.seed;
  line.repeat = planned.repeat;
  line.order = planned.order;
  line.promise = promise_of(Decoder::generation_for(spec, prompt));
  try {
    const LineRecord* reference = reference_for(bench, spec, line);
    if (!bench.memory.prepare(planned, bench.interrupted)) return std::nullopt;
    std::vector<RecordedStep> bounds;
    std::function<void(const JudgedStep&)> on_judged;
    if (bench.bounds != nullptr && planned.repeat == 0)
      on_judged = [&](const JudgedStep& step) { bounds.push_back(recorded_step(step)); };
    bench.calibration.probe(line.probes);
    if (bench.gpu != nullptr) bench.gpu->begin();
    auto turns = bench.decoder.decode({.spec = &spec,
                                       .prompt = &prompt,
                                       .seed = planned.seed,
                                       .reference = reference,
                                       .after_step = bench.calibration.probe_steps(line.probes),
                                       .on_judged = on_judged,
                                       .interrupted = bench.interrupted});
    if (!turns) return std::nullopt;
    line.turns = *std::move(turns);
    if (bench.gpu != nullptr) line.gpu = to_json(bench.gpu->end());
    bench.calibration.probe(line.probes);
    bench.memory.finished(planned);
    // The bounds are written before the line. If the run is killed in between, the line is measured again,
    // and the bounds are in the file twice. Readers take the first ones.
    if (!bounds.empty()) bench.bounds->append(bounds_line(line.case_id, line.prompt, line.seed, bounds));
    if (planned.repeat > 0) {
      for (GenerationRecord& turn : line.turns) turn.context.clear();
    } else {
      for (const GenerationRecord& turn : line.turns) {
        const auto pieces = token_pieces(bench.models, turn.tokens);
        line.pieces.insert(line.pieces.end(), pieces.begin(), pieces.end());
        line.text += (&turn == &line.turns.front() ? "" : "\u241e") + answer_text(bench.models, turn.tokens);
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
    const CaseSpec& spec = experiment.cases[static_cast<std::size_t>(index)];
    for (int i = 0; i < experiment.warmup && !interrupted(); ++i) {
      const PromptSpec& prompt = experiment.prompts[static_cast<std::size_t>(i) % experiment.prompts.size()];
      try {
        decoder.decode({.spec = &spec,
                        .prompt = &prompt,
                        .seed = experiment.seeds.front(),
                        .max_tokens = kTokens,
                        .interrupted = interrupted,
                        .apart = true});
      } catch (const Error&) {
        break;  // the lines of this case will record the error
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
  require_files({&experiment, 1});
  RunFolder folder(request.out, request.resume, experiment.resolved(), request.command_line);
  progress.note(
      fmt::format("loading {}{}", experiment.target,
                  experiment.inflate.any() ? ", inflated to " + to_json(experiment.inflate).dump() : ""));
  // Rendered prompts need no template, so a model whose template is unknown is no error then.
  const bool rendered = std::ranges::all_of(
      experiment.prompts, [](const PromptSpec& prompt) { return !prompt.renderer.empty(); });
  const std::shared_ptr<Backend> backend =
      open_backend(request.backend, [&](const std::string& line) { progress.note(line); });
  if (cpu_chose_numerics(request, *backend)) progress.note(auto_numerics_text(auto_cpu_numerics()));
  ModelSet models = experiment.markov
                        ? ModelSet(*experiment.markov, backend)
                        : ModelSet(experiment.target, backend,
                                   experiment.chat_template && !rendered ? experiment.chat_family : "plain",
                                   experiment.inflate, experiment.target_from);
  for (const CaseSpec& spec : experiment.cases) {
    for (const std::string& draft : spec.drafts) models.add_draft(experiment.drafts.at(draft));
  }
  require_controllers(experiment, models.descriptions());
  const json cost_table = cost_table_for(request, models, progress);
  Decoder decoder(
      experiment, models,
      cost_table.is_null()
          ? CostsByDrafts()
          : step_costs(cost_table,
                       request.resume || request.costs_of.empty() ? request.out : request.costs_of,
                       drafts_with_costs(experiment)));
  json environment = environment_of(request, models);
  if (!cost_table.is_null()) environment["step_costs"] = cost_table;
  if (!environment["optimised"].get<bool>())
    progress.note(
        "warning: times of this run are not reliable, because this binary was built without optimisation");
  GpuWarnings warnings(progress);
  std::unique_ptr<DeviceWatch> watch;
  if (environment.contains("gpu")) {
    const json& gpu = environment["gpu"];
    warnings.look_at({{"other_processes", gpu.value("compute_processes", 1) - 1},
                      {"slowed_by", gpu.value("slowed_by", json::array())}});
    watch = models.backend().device_status()->watch();
  }
  folder.begin(environment);
  RunLines lines(experiment, folder, [&](const std::string& message) { progress.note(message); });

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

  CaseMemory memory(experiment, decoder, lines, progress);
  std::optional<JsonLinesWriter> bounds;
  if (experiment.bounds) bounds.emplace(folder.path() / "bounds.jsonl");
  const Bench bench{.experiment = experiment,
                    .models = models,
                    .decoder = decoder,
                    .calibration = calibration,
                    .lines = lines,
                    .memory = memory,
                    .gpu = watch.get(),
                    .bounds = bounds ? &*bounds : nullptr,
                    .interrupted = interrupted};
  progress.start("lines", static_cast<int>(plan.size()), static_cast<int>(done));
  for (const PlannedLine& planned : todo) {
    calibrate(planned);
    if (interrupted()) break;
    std::optional<LineRecord> line = measure(bench, planned);
    if (!line) break;
    if (calibration.rounds() > 0) line->calibration_rounds = calibration.rounds();
    warnings.look_at_line(*line);
    const std::string id = line->case_id;
    if (!line->error.empty())
      progress.note(fmt::format("failed: {} prompt {}: {}", id, line->prompt, line->error));
    lines.add(*std::move(line));
    progress.advance(id);
    ++done;
  }
  calibrate(plan.back());
  progress.finish();

  int failed_estimates = 0;
  if (experiment.teacher_forced && !interrupted()) {
    progress.note("teacher-forced estimates");
    TeacherForcing teacher(experiment, models, text_of);
    failed_estimates = teacher.run(folder.path() / "teacher.jsonl", interrupted);
  }
  write_file(folder.path() / "summary.json", summary_text(summarise_run(folder.path())));
  return {.failed = lines.failures(),
          .unequal = lines.unequal(),
          .failed_estimates = failed_estimates,
          .interrupted = interrupted()};
}

}  // namespace speclab
