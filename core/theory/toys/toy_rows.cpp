#include "core/theory/toys/toy_rows.h"

#include <span>
#include <vector>

namespace speclab::theory {

toy::MarkovRows sampled_rows(const toy::MarkovTable& table, const SamplingParams& sampling) {
  toy::MarkovRows rows{table.vocab, table.order, {}};
  rows.probability.reserve(table.logits.size());
  Distribution row;
  std::vector<double> probabilities;
  const auto vocab = static_cast<std::size_t>(table.vocab);
  for (std::size_t at = 0; at < table.logits.size(); at += vocab) {
    row.assign_logits(std::span(table.logits).subspan(at, vocab), sampling, {}, table.vocab);
    row.probabilities(probabilities);
    rows.probability.insert(rows.probability.end(), probabilities.begin(), probabilities.end());
  }
  return rows;
}

}  // namespace speclab::theory
