#include "core/theory/layer_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/base/error.h"

namespace speclab::theory {
namespace {

constexpr int kPatience = 5;   // rounds without a faster set before layers are no longer removed
constexpr int kRepeats = 200;  // the search ends after this many consecutive random changes without a new set

class Search {
 public:
  Search(std::span<const int> layers, const SkipCosts& costs, const SkipSearchOptions& options,
         const SkipAcceptance& acceptance)
      : layers_(layers), costs_(costs), options_(options), acceptance_(acceptance), random_(options.seed) {}

  SkipSearchResult run() {
    remove_layers();
    change_layers();
    SkipSearchResult result;
    for (const auto& [size, choice] : by_size_) {
      result.by_size.push_back(*choice);
      if (choice->speedup > result.best.speedup) result.best = *choice;
    }
    result.evaluations = static_cast<int>(known_.size());
    result.ended = !stopped_;
    return result;
  }

 private:
  bool done() const { return stopped_ || static_cast<int>(known_.size()) >= options_.evaluations; }

  // Returns null when the search is over.
  const SkipChoice* evaluate(const std::vector<int>& skip) {
    if (const auto found = known_.find(skip); found != known_.end()) return &found->second;
    if (done()) return nullptr;
    std::optional<std::vector<double>> acceptance = acceptance_(skip);
    stopped_ = !acceptance.has_value();
    if (stopped_) return nullptr;
    const SkipChoice* made =
        &known_.emplace(skip, skip_choice(skip, *std::move(acceptance), costs_)).first->second;
    const auto [best, first] = by_size_.try_emplace(skip.size(), made);
    if (!first && made->speedup > best->second->speedup) best->second = made;
    return made;
  }

  static std::vector<int> with(std::vector<int> skip, int layer) {
    skip.insert(std::ranges::upper_bound(skip, layer), layer);
    return skip;
  }

  void remove_layers() {
    std::vector<int> order(layers_.begin(), layers_.end());  // best first, as of their last trial
    std::vector<int> skip;
    double best = 0;
    int since = 0;
    while (skip.size() + 1 < layers_.size() && since < kPatience && !done()) {
      const std::size_t tried =
          std::min(order.size(), skip.empty() ? order.size() : static_cast<std::size_t>(options_.tries));
      std::vector<std::pair<double, int>> found;
      for (std::size_t i = 0; i < tried; ++i) {
        const SkipChoice* choice = evaluate(with(skip, order[i]));
        if (choice == nullptr) return;
        found.emplace_back(choice->speedup, order[i]);
      }
      std::ranges::stable_sort(found, std::greater<>(), &std::pair<double, int>::first);
      for (std::size_t i = 0; i < tried; ++i) order[i] = found[i].second;
      skip = with(std::move(skip), order.front());
      order.erase(order.begin());
      since = found.front().first > best ? 0 : since + 1;
      best = std::max(best, found.front().first);
    }
  }

  const SkipChoice* fastest() const {
    const SkipChoice* best = nullptr;
    for (const auto& [size, choice] : by_size_) {
      if (best == nullptr || choice->speedup > best->speedup) best = choice;
    }
    return best;
  }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  void change_layers() {
    for (int repeats = 0; !done() && repeats < kRepeats;) {
      std::vector<int> skip = fastest()->skip;
      const std::size_t kind = below(3);  // 0: one skipped layer less, 1: one more, 2: an exchange
      if (kind != 1) skip.erase(skip.begin() + static_cast<std::ptrdiff_t>(below(skip.size())));
      if (kind != 0) {
        const int layer = layers_[below(layers_.size())];
        if (std::ranges::binary_search(skip, layer)) {
          ++repeats;
          continue;
        }
        skip = with(std::move(skip), layer);
      }
      if (skip.empty() || skip.size() == layers_.size() || known_.contains(skip)) {
        ++repeats;
        continue;
      }
      repeats = 0;
      evaluate(skip);
    }
  }

  std::span<const int> layers_;
  const SkipCosts& costs_;
  const SkipSearchOptions& options_;
  const SkipAcceptance& acceptance_;
  std::mt19937_64 random_;
  std::map<std::vector<int>, SkipChoice> known_;
  std::map<std::size_t, const SkipChoice*> by_size_;
  bool stopped_ = false;
};

}  // namespace

SkipChoice skip_choice(std::vector<int> skip, std::vector<double> acceptance, const SkipCosts& costs) {
  if (acceptance.empty())
    throw Error({"acceptance of a set of layers", "no depths", "at least one depth", ""});
  SkipChoice out;
  out.c = std::max(0.0, 1 - costs.per_layer * static_cast<double>(skip.size()));
  for (std::size_t gamma = 1; gamma <= acceptance.size(); ++gamma) {
    const int drafted = static_cast<int>(gamma);
    const double tau = positional_expected_tokens(std::span(acceptance).first(gamma));
    const double speedup = tau / (drafted * out.c + costs.target.ratio(drafted + 1));
    if (speedup <= out.speedup) continue;
    out.gamma = drafted;
    out.tau = tau;
    out.speedup = speedup;
  }
  out.skip = std::move(skip);
  out.acceptance = std::move(acceptance);
  return out;
}

SkipSearchResult search_skips(std::span<const int> layers, const SkipCosts& costs,
                              const SkipSearchOptions& options, const SkipAcceptance& acceptance) {
  if (layers.size() < 2 || options.evaluations < 1 || options.tries < 1) {
    throw Error({"search of layers to skip",
                 fmt::format("{} layers, {} evaluations, {} tries", layers.size(), options.evaluations,
                             options.tries),
                 "at least 2 layers, 1 evaluation and 1 try", ""});
  }
  return Search(layers, costs, options, acceptance).run();
}

}  // namespace speclab::theory
