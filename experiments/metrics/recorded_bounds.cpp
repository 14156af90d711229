#include "experiments/metrics/recorded_bounds.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

using nlohmann::json;

double seven_digits(double x) { return std::strtod(fmt::format("{:.7g}", x).c_str(), nullptr); }

json list(const std::vector<double>& values) {
  json out = json::array();
  for (const double x : values) out.push_back(seven_digits(x));
  return out;
}

double probability(const json& value) {
  const double x = value.get<double>();
  if (!(x >= 0 && x <= 1 + 1e-6))
    throw Error({"a probability", value.dump(), "a number from 0 to 1", "See results/SCHEMA.md."});
  return x;
}

std::vector<double> probabilities(const json& values) {
  std::vector<double> out;
  for (const json& value : values) out.push_back(probability(value));
  return out;
}

/// Reads how many tokens of this step a rule keeps.
int kept_count(const json& value, const RecordedStep& step) {
  const int count = value.get<int>(), most = static_cast<int>(step.bounds.by_path.size());
  if (count < 0 || count > most)
    throw Error(
        {"paired", value.dump(), fmt::format("a number from 0 to {}", most), "See results/SCHEMA.md."});
  return count;
}

}  // namespace

RecordedStep recorded_step(const JudgedStep& step) {
  return {static_cast<int>(step.accepted.size()), step.emitted,
          theory::step_bounds(step.draft, step.rows, step.accepted, step.eos),
          theory::paired_outcome(step.draft, step.rows, step.coins, step.position, step.eos)};
}

json bounds_line(const std::string& case_id, const std::string& prompt, std::uint64_t seed,
                 const std::vector<RecordedStep>& steps) {
  json out = {{"case", case_id}, {"prompt", prompt}, {"seed", seed}, {"steps", json::array()}};
  for (const RecordedStep& step : steps) {
    json best = json::array();
    for (const auto& bound : step.bounds.best)
      best.push_back(bound ? json(seven_digits(*bound)) : json(nullptr));
    out["steps"].push_back({{"accepted", step.accepted},
                            {"emitted", step.emitted},
                            {"chain", step.bounds.chain},
                            {"by_token", list(step.bounds.by_token)},
                            {"by_path", list(step.bounds.by_path)},
                            {"best", best}});
    if (step.paired) out["steps"].back()["paired"] = {step.paired->by_token, step.paired->by_path};
  }
  return out;
}

std::map<std::string, std::map<std::string, std::vector<RecordedStep>>> read_bounds(
    const std::filesystem::path& file) {
  std::map<std::string, std::map<std::string, std::vector<RecordedStep>>> out;
  std::set<std::tuple<std::string, std::string, std::uint64_t>> known;
  std::size_t number = 0;
  for (const json& line : read_json_lines(file)) {
    ++number;
    try {
      const std::string id = line.at("case"), prompt = line.at("prompt");
      if (!known.emplace(id, prompt, line.at("seed").get<std::uint64_t>()).second) continue;
      std::vector<RecordedStep>& steps = out[id][prompt];
      for (const json& from : line.at("steps")) {
        RecordedStep& step = steps.emplace_back();
        step.accepted = from.at("accepted");
        step.emitted = from.at("emitted");
        step.bounds.chain = from.at("chain");
        step.bounds.by_token = probabilities(from.at("by_token"));
        step.bounds.by_path = probabilities(from.at("by_path"));
        if (step.bounds.by_token.size() != step.bounds.by_path.size()) {
          throw Error({"by_path", fmt::format("{} numbers", step.bounds.by_path.size()),
                       fmt::format("{}, as in by_token", step.bounds.by_token.size()),
                       "See results/SCHEMA.md."});
        }
        if (from.contains("paired"))
          step.paired = theory::PairedOutcome{kept_count(from["paired"].at(0), step),
                                              kept_count(from["paired"].at(1), step)};
        for (const json& bound : from.at("best")) {
          if (bound.is_null()) step.bounds.best.emplace_back();
          else step.bounds.best.emplace_back(probability(bound));
        }
      }
    } catch (const std::exception& error) {
      throw Error({fmt::format("{}: line {}", file.string(), number), error.what(), "the bounds of a line",
                   "Delete the file; the run then has no bounds."});
    }
  }
  return out;
}

}  // namespace speclab
