#include "experiments/analysis/acceptance_by_entropy.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// A drafted token that was tested.
struct EntropySample {
  std::size_t prompt;
  double entropy;  // of the row that judged it
  bool accepted;
};

/// Number of samples and of accepted ones, by prompt.
struct CountsByPrompt {
  explicit CountsByPrompt(std::size_t prompts) : tokens(prompts), accepted(prompts) {}
  std::vector<double> tokens, accepted;
  void add(const EntropySample& sample) {
    tokens[sample.prompt] += 1;
    accepted[sample.prompt] += sample.accepted ? 1 : 0;
  }
  double all_tokens() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }
  double all_accepted() const { return std::accumulate(accepted.begin(), accepted.end(), 0.0); }
};

void add_samples(const GenerationRecord& turn, std::size_t prompt, std::size_t most_of_a_step,
                 std::vector<EntropySample>& out) {
  std::size_t pending = 0;  // place of the pending token in the text
  for (const StepRecord& step : turn.steps) {
    for (std::size_t i = 0; i < std::min(most_of_a_step, step.drafted.size()); ++i) {
      const std::size_t judged_at = pending + 1 + i;  // index in row_entropies
      if (!step.drafted[i].tested || judged_at >= turn.row_entropies.size()) break;
      out.push_back({prompt, turn.row_entropies[judged_at], step.drafted[i].accepted});
    }
    pending += static_cast<std::size_t>(step.emitted);
  }
}

std::vector<EntropySample> entropy_samples(const CaseData& data) {
  std::vector<EntropySample> out;
  const bool branches = any_step(data, [](const StepRecord& step) {
    return draft_depth(step) != step.drafted.size();  // a chain of n tokens has depth n
  });
  if (branches || feeds_probes(data)) return out;
  const bool trace = data.options().value("emit_at_most", 0) == 1;
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      if (!turn.row_entropies.empty())
        add_samples(turn, prompt, trace ? 1 : std::numeric_limits<std::size_t>::max(), out);
    }
  });
  return out;
}

/// The lower ends of all bins except the first. A sample at a lower end belongs to the bin that begins there.
std::vector<double> ends_of_bins(const std::vector<double>& sorted, int bins) {
  std::vector<double> ends;
  for (int i = 1; i < bins; ++i) {
    const double end = sorted[static_cast<std::size_t>(i) * sorted.size() / static_cast<std::size_t>(bins)];
    if (end > sorted.front() && (ends.empty() || end > ends.back())) ends.push_back(end);
  }
  return ends;
}

std::size_t bin_of(const std::vector<double>& ends, double entropy) {
  return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), entropy) - ends.begin());
}

/// Sets NAME and NAME_ci95 of a row to the acceptance of these counts; null without any.
void set_acceptance(const CaseData& data, const char* name, const CountsByPrompt& counts, json& row) {
  row[name] = nullptr;
  row[fmt::format("{}_ci95", name)] = nullptr;
  if (counts.all_tokens() == 0) return;
  const MetricValue value = ratio_of_sums(data, counts.accepted, counts.tokens);
  row[name] = value.value;
  row[fmt::format("{}_ci95", name)] = value.ci95;
}

json category_row(const CaseData& data, const std::string& category,
                  const std::vector<EntropySample>& samples, const std::vector<double>& ends, double median) {
  CountsByPrompt all(data.prompts.size()), easy = all, hard = all;
  std::vector<CountsByPrompt> bins(ends.size() + 1, all);
  for (const EntropySample& sample : samples) {
    if (data.categories[sample.prompt] != category) continue;
    all.add(sample);
    (sample.entropy < median ? easy : hard).add(sample);
    bins[bin_of(ends, sample.entropy)].add(sample);
  }
  json row = {{"category", category},
              {"tokens", all.all_tokens()},
              {"easy_share", easy.all_tokens() / all.all_tokens()},
              {"bins", json::array()}};
  set_acceptance(data, "acceptance", all, row);
  set_acceptance(data, "easy", easy, row);
  set_acceptance(data, "hard", hard, row);
  for (const CountsByPrompt& counts : bins) {
    const double tokens = counts.all_tokens();
    row["bins"].push_back(
        {{"tokens", tokens}, {"acceptance", tokens > 0 ? json(counts.all_accepted() / tokens) : json()}});
  }
  return row;
}

}  // namespace

json acceptance_by_entropy(const CaseData& data, int bins) {
  if (bins < 1) {
    throw Error({.what = "acceptance by entropy",
                 .got = fmt::format("{} bins", bins),
                 .expected = "1 or more",
                 .advice = ""});
  }
  const std::vector<EntropySample> samples = entropy_samples(data);
  if (samples.empty()) return nullptr;
  std::vector<double> sorted;
  for (const EntropySample& sample : samples) sorted.push_back(sample.entropy);
  std::sort(sorted.begin(), sorted.end());
  const std::vector<double> ends = ends_of_bins(sorted, bins);
  const double median = stats::median(sorted);
  std::vector<CountsByPrompt> counts(ends.size() + 1, CountsByPrompt(data.prompts.size()));
  std::vector<double> sums(ends.size() + 1);
  for (const EntropySample& sample : samples) {
    const std::size_t bin = bin_of(ends, sample.entropy);
    counts[bin].add(sample);
    sums[bin] += sample.entropy;
  }
  json out = {{"case", data.id()},
              {"tokens", samples.size()},
              {"median", median},
              {"bins", json::array()},
              {"categories", json::array()}};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    json row = {{"from", i == 0 ? sorted.front() : ends[i - 1]},
                {"to", i == ends.size() ? sorted.back() : ends[i]},
                {"entropy", sums[i] / counts[i].all_tokens()},
                {"tokens", counts[i].all_tokens()}};
    set_acceptance(data, "acceptance", counts[i], row);
    out["bins"].push_back(row);
  }
  std::vector<std::string> categories;  // those with samples, in the order of the prompts
  for (const EntropySample& sample : samples) {
    const std::string& category = data.categories[sample.prompt];
    if (std::find(categories.begin(), categories.end(), category) == categories.end())
      categories.push_back(category);
  }
  for (const std::string& category : categories)
    out["categories"].push_back(category_row(data, category, samples, ends, median));
  return out;
}

std::string acceptance_by_entropy_text(const json& acceptance) {
  const auto named = [](const json& row) {
    const std::string name = row["category"];
    return name.empty() ? std::string("no category") : name;
  };
  Table bins{.header = {"entropy (nats)", "tokens", "acceptance"}, .rows = {}, .right = {true, true, true}};
  for (const json& category : acceptance["categories"]) {
    bins.header.push_back(named(category));
    bins.right.push_back(true);
  }
  std::size_t place = 0;
  for (const json& bin : acceptance["bins"]) {
    bins.rows.push_back({fmt::format("{} to {}", number_text(bin["from"]), number_text(bin["to"])),
                         fmt::format("{:.0f}", bin["tokens"].get<double>()),
                         interval_text(bin, "acceptance")});
    for (const json& category : acceptance["categories"])
      bins.rows.back().push_back(number_text(category["bins"][place]["acceptance"]));
    ++place;
  }
  Table categories{.header = {"category", "tokens", "acceptance", "easy tokens", "acceptance of easy tokens",
                              "acceptance of the others"},
                   .rows = {},
                   .right = {false, true, true, true, true, true}};
  for (const json& row : acceptance["categories"]) {
    categories.rows.push_back({named(row), fmt::format("{:.0f}", row["tokens"].get<double>()),
                               interval_text(row, "acceptance"),
                               fmt::format("{:.0f} %", 100 * row["easy_share"].get<double>()),
                               interval_text(row, "easy"), interval_text(row, "hard")});
  }
  return fmt::format(
      "Acceptance by the entropy of the target's row, {}\n{}\n\nEasy tokens: those with an entropy below {} "
      "nats, the median of all tokens\n{}\n",
      acceptance["case"].get<std::string>(), to_text(bins), number_text(acceptance["median"]),
      to_text(categories));
}

}  // namespace speclab
