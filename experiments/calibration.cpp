#include "experiments/calibration.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/measure/stats.h"
#include "experiments/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kStepTokens = 32;  ///< of the short decodings
constexpr int kStepPrompts = 2;
constexpr int kUsualRows = 9;  ///< most drafts are no longer than 8: what predictions hang on ...
constexpr int kUsualRepeats = 3;  ///< ... is measured so many times more often

json as_json(const std::map<int, double>& values, double unit = 1) {
  json out = json::object();
  for (const auto& [n, value] : values) out[std::to_string(n)] = value / unit;
  return out;
}

json as_json(const LinearCost& cost) {
  return {{"constant", cost.constant}, {"slope", cost.slope}};
}

/// t(n) in ns. The machine may drift between the two measurements: one row belongs to both and sets the scale.
std::map<int, double> time_target(const Model& model, int context, const CalibrationOptions& options,
                                  const std::function<bool()>& interrupted) {
  std::vector<int> usual, wide = {1};
  for (int n = 1; n <= options.rows; ++n) (n <= kUsualRows ? usual : wide).push_back(n);
  std::map<int, double> times =
      time_forwards(model, context, usual, kUsualRepeats * options.repeats, interrupted);
  if (times.empty() || wide.size() == 1) return times;
  const std::map<int, double> rest = time_forwards(model, context, wide, options.repeats, interrupted);
  if (rest.empty()) return {};
  const double scale = times.at(1) / rest.at(1);
  for (const auto& [n, time] : rest) times.emplace(n, time * scale);
  return times;
}

using Texts = std::map<std::string, LineRecord>;  ///< by prompt

/// Short decodings under one case; `texts` gets what was written.
json step_costs(const Experiment& experiment, const CaseSpec& spec, Decoder& decoder, const Texts& references,
                Texts& texts) {
  std::multimap<int, double> draft, accept, other;
  double wall = 0, steps = 0;
  const auto prompts = std::min<std::size_t>(experiment.prompts.size(), kStepPrompts);
  for (std::size_t i = 0; i < prompts; ++i) {
    const PromptSpec& prompt = experiment.prompts[i];
    const auto reference = references.find(prompt.id);
    LineRecord& line = texts[prompt.id];
    line.turns = decoder.decode({.spec = &spec,
                                 .prompt = &prompt,
                                 .seed = experiment.seeds.front(),
                                 .max_tokens = kStepTokens,
                                 .reference = reference == references.end() ? nullptr : &reference->second});
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        const int drafted = static_cast<int>(step.drafted.size());
        draft.emplace(drafted, static_cast<double>(step.times[Phase::draft]));
        accept.emplace(step.accepted + 1, static_cast<double>(step.times[Phase::accept]));
        other.emplace(0, static_cast<double>(step.times[Phase::other]));
        wall += static_cast<double>(step.times.total());
        ++steps;
      }
    }
  }
  if (steps == 0) return nullptr;
  return {{"draft_ns", as_json(fit_cost(draft))},
          {"accept_ns", as_json(fit_cost(accept))},
          {"other_ns", fit_cost(other).constant},
          {"step_ns", wall / steps},
          {"steps", steps}};
}

}  // namespace

LinearCost fit_cost(const std::multimap<int, double>& samples) {
  std::map<int, std::vector<double>> groups;
  for (const auto& [count, ns] : samples) groups[count].push_back(ns);
  if (groups.empty()) return {};
  if (groups.size() == 1) {
    const auto& [count, times] = *groups.begin();
    const double median = stats::median(times);
    return count == 0 ? LinearCost{median, 0} : LinearCost{0, median / count};
  }
  double weight = 0, x_sum = 0, y_sum = 0, xx = 0, xy = 0;
  for (const auto& [count, times] : groups) {
    const double w = static_cast<double>(times.size()), x = count, y = stats::median(times);
    weight += w, x_sum += w * x, y_sum += w * y, xx += w * x * x, xy += w * x * y;
  }
  const double spread = xx - x_sum * x_sum / weight;
  double slope = (xy - x_sum * y_sum / weight) / spread, constant = (y_sum - slope * x_sum) / weight;
  if (slope < 0) slope = 0, constant = y_sum / weight;
  if (constant < 0) constant = 0, slope = xx > 0 ? xy / xx : 0;
  return {constant, slope};
}

json calibrate(const Experiment& experiment, const ModelSet& models, Decoder& decoder,
               const std::function<bool()>& interrupted) {
  const CalibrationOptions& options = experiment.calibration;
  const int context = options.context > 0 ? options.context : decoder.mean_context();
  const std::map<int, double> target = time_target(*models.target(), context, options, interrupted);
  if (target.empty()) return json::object();
  json out = {{"context_length", context},
              {"t_n_ns", as_json(target)},
              {"t_n", as_json(target, target.at(1))},
              {"drafts", json::object()},
              {"cases", json::object()}};
  std::set<std::string> drafts;
  for (const CaseSpec& spec : experiment.cases) {
    if (!spec.draft.empty()) drafts.insert(spec.draft);
  }
  for (const std::string& name : drafts) {
    const std::map<int, double> times =
        time_forwards(*models.draft(name), context, {1, 2}, std::max(options.repeats, 15), interrupted);
    if (times.empty()) return json::object();
    out["drafts"][name] = {{"n_ns", as_json(times)}, {"c", times.at(1) / target.at(1)}};
  }
  // Autoregressive cases come first in an experiment: their texts are what `simulated` proposes.
  std::map<std::string, Texts> texts;
  for (const CaseSpec& spec : experiment.cases) {
    if (interrupted()) return json::object();
    try {
      out["cases"][spec.id] = step_costs(experiment, spec, decoder, texts[spec.reference], texts[spec.id]);
    } catch (const Error&) {
      out["cases"][spec.id] = nullptr;  // its lines will say what is wrong
    }
  }
  return out;
}

}  // namespace speclab
