#include "experiments/run/run_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "core/base/error.h"

namespace speclab {
namespace {

using Random = std::mt19937_64;

/// The Fisher-Yates shuffle. std::shuffle is not used, because it differs between libraries.
template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

/// Draws places from 0 to n - 1 at random. Every place comes once before any place comes again.
class Places {
 public:
  int next(int n, Random& random) {
    if (left_.empty() || n != n_) {
      n_ = n;
      left_.resize(static_cast<std::size_t>(n));
      std::iota(left_.begin(), left_.end(), 0);
      shuffle(left_, random);
    }
    const int place = left_.back();
    left_.pop_back();
    return place;
  }

 private:
  int n_ = 0;
  std::vector<int> left_;
};

/// Draws the order of the cases for one text after the other.
class CaseOrder {
 public:
  CaseOrder(const Experiment& experiment, Random& random) : cases_(experiment.cases), random_(random) {}

  /// `references_known`: the texts of all references are finished, so no case has to wait for its reference.
  std::vector<int> next(bool references_known) {
    std::vector<int> order, references, behind;
    for (int i = 0; i < static_cast<int>(cases_.size()); ++i) {
      const CaseSpec& spec = of(i);
      const bool waits = spec.strategy.info().needs_reference && !references_known;
      (spec.reference.empty() ? references : waits ? behind : order).push_back(i);
    }
    shuffle(order, random_);
    for (const int i : references)
      order.insert(order.begin() + places_[i].next(static_cast<int>(order.size()) + 1, random_), i);
    shuffle(behind, random_);
    for (const int i : behind) {
      const auto reference =
          std::ranges::find_if(order, [&](int other) { return of(other).id == of(i).reference; });
      SPECLAB_CHECK(reference != order.end(), "{} has no reference", of(i).id);
      const auto places = static_cast<std::uint64_t>(order.end() - reference);
      order.insert(reference + 1 + static_cast<std::ptrdiff_t>(random_() % places), i);
    }
    return order;
  }

 private:
  const CaseSpec& of(int index) const { return cases_[static_cast<std::size_t>(index)]; }

  const std::vector<CaseSpec>& cases_;
  Random& random_;
  std::map<int, Places> places_;  // by index of the reference
};

void check_shard(const Experiment& experiment, const Shard& shard, const CaseSpec* with_memory) {
  SPECLAB_CHECK(1 <= shard.i && shard.i <= shard.n, "shard {}/{}", shard.i, shard.n);
  const auto got = fmt::format("{}/{}", shard.i, shard.n);
  const int prompts = static_cast<int>(experiment.prompts.size());
  if (shard.n > std::max(1, prompts)) {
    throw Error({.what = "--shard",
                 .got = got,
                 .expected = fmt::format("at most {} shards, one for each prompt", prompts),
                 .advice = "Use fewer shards."});
  }
  if (shard.n > 1 && with_memory != nullptr) {
    throw Error(
        {.what = "--shard",
         .got = fmt::format("{} of an experiment with {}, which carries memory from one prompt to the next",
                            got, with_memory->id),
         .expected = "cases that decode every prompt on its own",
         .advice = "Run it without --shard, or leave such cases out with --filter."});
  }
}

}  // namespace

std::vector<PlannedLine> plan_lines(const Experiment& experiment, const Shard& shard) {
  const auto with_memory = std::ranges::find_if(
      experiment.cases, [](const CaseSpec& spec) { return spec.strategy.carries_memory(); });
  const bool in_file_order = with_memory != experiment.cases.end();
  check_shard(experiment, shard, in_file_order ? &*with_memory : nullptr);
  std::vector<PlannedLine> plan;
  Random random(experiment.seeds.front() * 1'000'003 + 17);
  std::vector<std::pair<int, std::uint64_t>> texts;
  for (const std::uint64_t seed : experiment.seeds) {
    for (int prompt = 0; prompt < static_cast<int>(experiment.prompts.size()); ++prompt)
      texts.emplace_back(prompt, seed);
  }
  CaseOrder cases(experiment, random);
  for (int repeat = 0; repeat < experiment.repeats; ++repeat) {
    if (!in_file_order) shuffle(texts, random);
    for (const auto& [prompt, seed] : texts) {
      for (const int index : cases.next(repeat > 0)) {
        plan.push_back({.order = static_cast<int>(plan.size()),
                        .case_index = index,
                        .prompt_index = prompt,
                        .seed = seed,
                        .repeat = repeat});
      }
    }
  }
  // The order was drawn for the whole run. A shard keeps that order without the other shards' prompts.
  std::erase_if(plan, [&](const PlannedLine& line) { return line.prompt_index % shard.n != shard.i - 1; });
  return plan;
}

}  // namespace speclab
