#include "experiments/reference_check.h"

#include <algorithm>

namespace speclab {
namespace {

template <class T>
std::optional<int> first_index(std::span<const T> a, std::span<const T> b) {
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (a[i] != b[i]) return static_cast<int>(i);
  }
  if (a.size() == b.size()) return std::nullopt;
  return static_cast<int>(common);
}

}  // namespace

std::optional<int> first_difference(TokenSpan a, TokenSpan b) {
  return first_index<Token>(a, b);
}

ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference,
                             const GenerationOptions& generation) {
  const AcceptanceRule& rule = generation.acceptance_rule();
  const LossClass loss = rule.loss(generation.rule_options, generation.sampling);
  const bool coupled = generation.coins == "gumbel";
  if (loss != LossClass::l2 && !(coupled && loss == LossClass::l1)) return {};
  ReferenceCheck check;
  check.first_divergence = first_difference(line.tokens(), reference.tokens());
  if (loss == LossClass::l2) {
    const std::vector<std::uint32_t> rows = line.row_hashes(), expected = reference.row_hashes();
    const std::optional<int> row = first_index<std::uint32_t>(rows, expected);
    if (row && (!check.first_divergence || *row < *check.first_divergence)) check.first_divergence = row;
  }
  check.matches = !check.first_divergence.has_value();
  return check;
}

}  // namespace speclab
