#include "experiments/run/reference_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>

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

std::optional<int> first_difference(TokenSpan a, TokenSpan b) { return first_index<Token>(a, b); }

Promise promise_of(const GenerationOptions& generation) {
  const LossClass loss = generation.acceptance_rule().loss(generation.rule_options, generation.sampling);
  if (loss == LossClass::l2) return Promise::rows;
  return loss == LossClass::l1 && generation.coins == CoinUse::gumbel ? Promise::ids : Promise::nothing;
}

ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference, Promise promise) {
  ReferenceCheck check;
  if (promise == Promise::nothing) return check;
  check.first_divergence = first_difference(line.tokens(), reference.tokens());
  if (promise == Promise::rows) {
    const std::vector<std::uint32_t> rows = line.row_hashes(), expected = reference.row_hashes();
    const std::optional<int> row = first_index<std::uint32_t>(rows, expected);
    if (row && (!check.first_divergence || *row < *check.first_divergence)) check.first_divergence = row;
  }
  check.matches = !check.first_divergence.has_value();
  return check;
}

void check_record(std::map<std::string, std::vector<LineRecord>>& lines,
                  const std::map<std::string, std::string>& reference_of) {
  std::map<std::tuple<std::string, std::string, std::uint64_t>, const LineRecord*> references;
  for (const auto& [id, reference] : reference_of) {
    if (id != reference) continue;
    for (const LineRecord& line : lines[id]) {
      if (line.repeat == 0) references.emplace(std::tuple(id, line.prompt, line.seed), &line);
    }
  }
  std::set<const LineRecord*> unchecked;
  for (auto& [id, of_case] : lines) {
    for (LineRecord& line : of_case) {
      if (!line.error.empty() || line.promise.value_or(Promise::nothing) == Promise::nothing) continue;
      const auto found = references.find({reference_of.at(id), line.prompt, line.seed});
      if (found == references.end()) {
        unchecked.insert(&line);
      } else if (const LineRecord& reference = *found->second; !reference.error.empty()) {
        line.error = "nothing to compare with: the line of " + reference.case_id + " failed";
      } else if (&reference != &line) {
        const ReferenceCheck check = check_against(line, reference, *line.promise);
        line.matches_reference = check.matches;
        line.first_divergence = check.first_divergence;
      }
    }
  }
  for (auto& [id, of_case] : lines)
    std::erase_if(of_case, [&](const LineRecord& line) { return unchecked.contains(&line); });
}

}  // namespace speclab
