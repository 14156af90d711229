#include "core/theory/audit/enumerate.h"

#include <cmath>
#include <utility>

namespace speclab::enumerate {
namespace {

struct Cut {};  // thrown to end a run that has become too improbable

struct Choice {
  std::vector<double> weights;
  double sum;
  std::size_t taken;
  std::size_t next(std::size_t from) const {
    while (from < weights.size() && !(weights[from] > 0)) ++from;
    return from;
  }
};

}  // namespace

double walk(const std::function<void(const Coins&)>& program, const std::function<void(double)>& visit,
            double least) {
  double pruned = 0;
  std::vector<Choice> path;
  for (;;) {
    std::size_t depth = 0;
    double probability = 1;
    Coins::Script script = [&](std::span<const double> weights) {
      if (depth == path.size()) {
        Choice choice{{weights.begin(), weights.end()}, 0, 0};
        for (const double w : weights) choice.sum += w;
        choice.taken = choice.next(0);
        path.push_back(std::move(choice));
      }
      const Choice& choice = path[depth++];
      probability *= choice.weights[choice.taken] / choice.sum;
      if (probability < least) throw Cut{};
      return choice.taken;
    };
    try {
      program(Coins::scripted(&script));
      visit(probability);
    } catch (const Cut&) {
      pruned += probability;
    }
    path.resize(depth);
    while (!path.empty()) {
      Choice& last = path.back();
      last.taken = last.next(last.taken + 1);
      if (last.taken < last.weights.size()) break;
      path.pop_back();
    }
    if (path.empty()) return pruned;
  }
}

Law law_of(const std::function<Outcome(const Coins&)>& program, double least) {
  Law law;
  Outcome outcome;
  law.pruned = walk([&](const Coins& coins) { outcome = program(coins); },
                    [&](double probability) {
                      law.mass[outcome] += probability;
                      ++law.runs;
                    },
                    least);
  return law;
}

double total_variation(const std::map<Outcome, double>& a, const std::map<Outcome, double>& b) {
  double sum = 0;
  for (const auto& [outcome, mass] : a) {
    const auto it = b.find(outcome);
    sum += std::abs(mass - (it == b.end() ? 0 : it->second));
  }
  for (const auto& [outcome, mass] : b) sum += a.count(outcome) == 0 ? mass : 0;
  return sum / 2;
}

}  // namespace speclab::enumerate
