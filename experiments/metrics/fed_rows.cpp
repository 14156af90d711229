#include "experiments/metrics/fed_rows.h"

#include <algorithm>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

void count_rows(theory::DraftLengths& counts, int rows) {
  if (static_cast<int>(counts.size()) <= rows) counts.resize(static_cast<std::size_t>(rows) + 1);
  ++counts[static_cast<std::size_t>(rows)];
}

void add_counts(theory::DraftLengths& sum, const theory::DraftLengths& counts) {
  if (sum.size() < counts.size()) sum.resize(counts.size());
  for (std::size_t n = 0; n < counts.size(); ++n) sum[n] += counts[n];
}

}  // namespace

std::vector<FedRows> fed_rows(const CaseData& data) {
  std::vector<FedRows> out(data.prompts.size());
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    FedRows& fed = out[prompt];
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        const auto drafted = static_cast<int>(step.drafted.size());
        count_rows(fed.window, std::max(1, step.rows - drafted));
        count_rows(fed.rows, step.rows);
        fed.steps += 1, fed.tokens += step.emitted, fed.drafted += drafted;
      }
    }
  });
  return out;
}

theory::RowsExplainInput rows_input(const std::vector<FedRows>& fed, std::span<const std::size_t> prompts,
                                    const theory::Calibration& calibration, double equivalent_share) {
  theory::RowsExplainInput input;
  double steps = 0, tokens = 0, drafted = 0;
  for (const std::size_t i : prompts) {
    add_counts(input.window_rows, fed[i].window);
    add_counts(input.rows, fed[i].rows);
    steps += fed[i].steps, tokens += fed[i].tokens, drafted += fed[i].drafted;
  }
  input.tau = steps > 0 ? tokens / steps : 0;
  input.drafted = steps > 0 ? drafted / steps : 0;
  input.calibration = calibration;
  input.equivalent_share = equivalent_share;
  return input;
}

}  // namespace speclab
