#include "experiments/analysis/trees/counts_by_kind.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {

void CountsByKind::add(int kind, const StepRecord& step) {
  all_.add(step);
  if (kind < 0) return;
  if (kind >= kinds()) of_kind_.resize(static_cast<std::size_t>(kind) + 1);
  Kind& of = of_kind_[static_cast<std::size_t>(kind)];
  ++of.steps;
  of.counts.add(step);
}

void CountsByKind::add(const CountsByKind& other) {
  all_.add(other.all_);
  if (of_kind_.size() < other.of_kind_.size()) of_kind_.resize(other.of_kind_.size());
  for (std::size_t kind = 0; kind < other.of_kind_.size(); ++kind) {
    of_kind_[kind].steps += other.of_kind_[kind].steps;
    of_kind_[kind].counts.add(other.of_kind_[kind].counts);
  }
}

void CountsByKind::subtract(const CountsByKind& other) {
  all_.subtract(other.all_);
  for (std::size_t kind = 0; kind < other.of_kind_.size(); ++kind) {
    of_kind_.at(kind).steps -= other.of_kind_[kind].steps;
    of_kind_.at(kind).counts.subtract(other.of_kind_[kind].counts);
  }
}

theory::RankAcceptance CountsByKind::acceptance(int kind) const {
  std::vector<std::vector<double>> depths = all_.by_depth().by_depth();
  if (depths.size() == 1) depths.push_back(depths.front());  // the last depth stands for all greater ones
  if (kind >= 0 && kind < kinds() && !of(kind).counts().empty()) {
    const std::vector<RankCounts::Count>& ranks = of(kind).counts().front();
    std::vector<double>& first = depths.front();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].reached >= RankCounts::kLeast) first[rank] = ranks[rank].accepted / ranks[rank].reached;
    }
    double sum = 0;  // can exceed 1, because some ranks may have the p of all kinds
    for (const double p : first) sum += p;
    for (double& p : first) p /= std::max(1.0, sum);
  }
  return theory::RankAcceptance(std::move(depths));
}

bool chooses_trees(const CaseData& data) {
  return any_step(data, [](const StepRecord& step) { return step.tree_number >= 0; });
}

}  // namespace speclab
