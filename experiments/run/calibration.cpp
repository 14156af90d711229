#include "experiments/run/calibration.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/measure/run_result.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kStepTokens = 24;  ///< tokens of a short text
/// Measurements of each size up to kNarrow in a round. Every prediction needs t(1) and a few narrow sizes.
constexpr int kNarrowTurns = 5;

/// Forwards of up to kNarrow rows are measured in every round, those of up to kUsual rows in every other
/// round. Wider ones are rare in usual cases, so a few measurements in the whole run are enough. Trees choose
/// among sizes of up to kTree rows, which takes more measurements.
constexpr int kNarrow = 5, kUsual = 9, kTree = 32;
constexpr int kTreeSamples = 12, kWideSamples = 4;

/// The number of rounds that measure a forward of n rows, for n above kNarrow.
int samples_of(int n, int rounds) {
  if (n <= kUsual) return (rounds + 1) / 2;
  return std::min(n <= kTree ? kTreeSamples : kWideSamples, rounds);
}

/// Untimed forwards of up to kUsual rows at the start of a round. In records of a Zen 5 with two cores, a
/// forward of 8 rows took 1.6 times as long as one of a single row if it was among the first two of a round,
/// and 1.2 times as long after six others.
constexpr int kUntimed = 8;

/// Returns the first step and all steps whose drafts the end of the text cannot have cut. The text has at
/// most `most_tokens` tokens. Cut drafts would bias the fitted cost of long drafts, because the first tokens
/// of a draft cost more than later ones: the CPU's caches do not hold the draft's weights yet.
std::vector<const StepRecord*> whole_steps(const GenerationRecord& text, int most_tokens) {
  int deepest = 0;
  for (const StepRecord& step : text.steps) deepest = std::max(deepest, static_cast<int>(draft_depth(step)));
  std::vector<const StepRecord*> whole;
  int left = most_tokens - 1;  // the first token came from prefill
  for (const StepRecord& step : text.steps) {
    if (whole.empty() || left > deepest) whole.push_back(&step);
    left -= step.emitted;
  }
  return whole;
}

json as_json(const StepRecord& step) {
  return {{"drafted", step.drafted.size()},
          {"accepted", step.accepted},
          {"ns",
           {{"draft", step.times[Phase::draft]},
            {"accept", step.times[Phase::accept]},
            {"other", step.times[Phase::other]},
            {"step", step.times.total()}}}};
}

json as_json(const OverlapTimes& times) {
  json out = {{"t_n_ns", json::object()},
              {"draft_ns", times.draft_ns},
              {"draft_draw_ns", times.draft_draw_ns},
              {"draft_alone_ns", times.draft_alone_ns}};
  for (const auto& [n, ns] : times.target_ns) out["t_n_ns"][std::to_string(n)] = ns;
  return out;
}

/// Adds the time of a forward of n rows to the times by the host's clock and, if there is a device, to the
/// times by the device's clock.
void put(json& of_host, json& of_device, int n, const ForwardTime& time) {
  of_host[std::to_string(n)] = time.host_ns;
  if (time.device_ns) of_device[std::to_string(n)] = *time.device_ns;
}

}  // namespace

std::vector<PlannedForward> planned_forwards(int round, int rounds, int rows, int turns) {
  std::vector<PlannedForward> plan;
  const int narrow = std::min(kNarrow, rows);
  for (int i = 0; i < kUntimed; ++i) plan.push_back({std::min(kUsual, rows), false});
  for (int n = rows; n > narrow; --n) {
    if (is_measured_size(n, rows) && measured_in(round, rounds, samples_of(n, rounds), n))
      plan.push_back({n, true});
  }
  for (int turn = 0; turn < turns; ++turn) {
    for (int n = narrow; n >= 1; --n) plan.push_back({n, true});
  }
  return plan;
}

Calibration::Calibration(const Experiment& experiment, const ModelSet& models, Decoder& decoder,
                         const Shard& shard, std::size_t lines, const std::filesystem::path& folder,
                         Texts texts)
    : experiment_(experiment),
      models_(models),
      decoder_(decoder),
      shard_({shard.i, shard.n}),
      lines_(lines),
      file_(folder / "calibration.jsonl"),
      texts_(std::move(texts)) {
  const CalibrationOptions& options = experiment.calibration;
  if (!options.enabled) return;
  rounds_ = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(options.rounds), lines + 1));
  for (int n = 1; n <= options.draft_rows; n *= 2) draft_sizes_.insert(draft_sizes_.begin(), n);
  for (const json& round : read_json_lines(file_)) {
    if (!round.is_object())
      throw Error({file_.string(), "a line that is no JSON object", "rounds of the calibration",
                   "Delete the file; the run then measures the rounds again."});
    done_ += round.value("shard", json({1, 1})) == shard_;
  }
  const int room = models.target()->config().context;
  rows_ = std::min(options.rows, room - 1);
  context_ = std::clamp(options.context > 0 ? options.context : decoder.mean_context(), 1, room - rows_);
}

bool Calibration::due(std::size_t done) const {
  if (done_ >= rounds_) return false;
  return rounds_ == 1 ||
         done * static_cast<std::size_t>(rounds_ - 1) >= static_cast<std::size_t>(done_) * lines_;
}

ForwardTimer& Calibration::timer(const std::string& draft) {
  const auto found = timers_.find(draft);
  if (found != timers_.end()) return found->second;
  if (draft.empty()) return timers_.try_emplace(draft, *models_.target(), context_, rows_).first->second;
  const Model& model = *models_.draft(draft);
  const int most = std::min(draft_sizes_.front(), model.config().context - 1);
  return timers_.try_emplace(draft, model, context_, most).first->second;
}

OverlapTimer& Calibration::overlap_timer(const CaseSpec& spec) {
  const auto found = overlap_timers_.find(spec.id);
  if (found != overlap_timers_.end()) return found->second;
  const json options = spec.options();
  const DraftSampling of_draft{.temperature = options.value("draft_temperature", -1.0),
                               .top_k = options.value("draft_top_k", -1),
                               .top_p = options.value("draft_top_p", -1.0)};
  const OverlapTimer::Setting setting{
      .context = context_,
      .most_rows = std::clamp(options.value("gamma", 1) + 1, 1, models_.target()->config().context - 1),
      .sampling = of_draft.over(spec.generation.sampling),
      .coupled = spec.generation.coins == CoinUse::gumbel};
  return overlap_timers_
      .try_emplace(spec.id, models_.target(), models_.draft(spec.drafts.front()), spec.strategy.info().name,
                   setting)
      .first->second;
}

bool Calibration::runs_probes() const {
  return rounds_ > 0 && experiment_.calibration.probe_every > 0 && models_.backend().host_memory();
}

void Calibration::probe(std::vector<ProbeTimes>& probes) {
  if (!runs_probes()) return;
  if (!probes_) {
    probes_.emplace(models_.backend().threads());
    probes_->run();  // warms up
  }
  probes.push_back(probes_->run());
}

std::function<void(const StepRecord&)> Calibration::probe_steps(std::vector<ProbeTimes>& probes) {
  if (!runs_probes()) return nullptr;
  return [this, &probes, every = experiment_.calibration.probe_every, count = 0](const StepRecord&) mutable {
    if (++count % every == 0) probe(probes);
  };
}

void Calibration::measure(const PromptSpec& prompt, const std::function<bool()>& interrupted) {
  json round = {{"round", done_},           {"shard", shard_},          {"context_length", context_},
                {"t_n_ns", json::object()}, {"drafts", json::object()}, {"cases", json::object()}};
  json on_device = json::object(), drafts_on_device = json::object();
  struct Sum {
    ForwardTime time;
    int forwards = 0;
  };
  std::map<int, Sum> sums;  // by number of rows
  std::vector<ProbeTimes> probes;
  probe(probes);
  for (const PlannedForward& forward : planned_forwards(done_, rounds_, rows_, kNarrowTurns)) {
    if (interrupted()) return;
    const ForwardTime time = timer("").time(forward.rows);
    if (!forward.timed) continue;
    Sum& sum = sums[forward.rows];
    ++sum.forwards;
    sum.time.host_ns += time.host_ns;
    if (time.device_ns) sum.time.device_ns = sum.time.device_ns.value_or(0) + *time.device_ns;
  }
  for (const auto& [n, sum] : sums) {
    ForwardTime mean{sum.time.host_ns / sum.forwards, std::nullopt};
    if (sum.time.device_ns) mean.device_ns = *sum.time.device_ns / sum.forwards;
    put(round["t_n_ns"], on_device, n, mean);
  }
  probe(probes);
  for (const ProbeTimes& one : probes) round["probes"].push_back({one.memory_ns, one.arithmetic_ns});
  int index = 0;
  for (const CaseSpec& spec : experiment_.cases) {
    if (interrupted()) return;
    for (const std::string& name : spec.drafts) {
      if (round["drafts"].contains(name)) continue;
      ForwardTimer& draft = timer(name);
      json host = json::object(), device = json::object();
      const int room = models_.draft(name)->config().context - 1;
      for (const int n : draft_sizes_) {
        if (n <= room) put(host, device, n, draft.time(n));
      }
      round["drafts"][name] = std::move(host);
      if (!device.empty()) drafts_on_device[name] = std::move(device);
    }
    if (spec.strategy.info().drafts_ahead) {
      try {
        round["ahead"][spec.id] = as_json(overlap_timer(spec).measure());
      } catch (const Error&) {
        // The lines of this case will record the error.
      }
    }
    const int phase = index++ * rounds_ / static_cast<int>(experiment_.cases.size());
    if (measured_in(done_, rounds_, experiment_.calibration.texts, phase))
      round["cases"][spec.id] = steps(spec, prompt, interrupted);
  }
  if (interrupted()) return;
  if (!on_device.empty())
    round["device"] = {{"t_n_ns", std::move(on_device)}, {"drafts", std::move(drafts_on_device)}};
  JsonLinesWriter(file_).append(round);
  ++done_;
}

json Calibration::steps(const CaseSpec& spec, const PromptSpec& prompt,
                        const std::function<bool()>& interrupted) const {
  const auto decode = [&](const CaseSpec& of, const LineRecord* reference) {
    return decoder_.decode({.spec = &of,
                            .prompt = &prompt,
                            .seed = experiment_.seeds.front(),
                            .max_tokens = kStepTokens,
                            .reference = reference,
                            .interrupted = interrupted,
                            .apart = true});
  };
  try {
    LineRecord text;
    const LineRecord* reference = nullptr;
    if (spec.strategy.info().needs_reference) {
      reference = texts_(spec.reference, prompt.id, experiment_.seeds.front());
      if (reference == nullptr) {
        auto turns = decode(experiment_.case_by_id(spec.reference), nullptr);
        if (!turns) return nullptr;
        text.turns = *std::move(turns);
        reference = &text;
      }
    }
    const auto turns = decode(spec, reference);
    if (!turns) return nullptr;
    json steps = json::array();
    for (const GenerationRecord& turn : *turns) {
      for (const StepRecord* step :
           whole_steps(turn, std::min(kStepTokens, Decoder::generation_for(spec, prompt).max_tokens)))
        steps.push_back(as_json(*step));
    }
    return steps;
  } catch (const Error&) {
    return nullptr;  // the lines of this case will record the error
  }
}

}  // namespace speclab
