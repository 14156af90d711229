#include "experiments/simulate/replay/oracles.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay.h"

namespace speclab {
namespace {

using nlohmann::json;

/// One drafter of a text.
struct DrafterOfText {
  const TracedText* text;
  const StepPrices* prices;
  int most;  // longest draft
};

/// The least time in which steps of these drafters can make the text, if the accepted tokens are known
/// beforehand.
double least_time(std::span<const DrafterOfText> drafters) {
  const std::size_t count = drafters.front().text->drafts.size();
  std::vector<double> rest(count + 1, 0);  // rest[i]: least time from position i to the end
  for (std::size_t i = count; i-- > 0;) {
    rest[i] = std::numeric_limits<double>::infinity();
    for (const DrafterOfText& drafter : drafters) {
      const int useful =
          std::min({drafter.text->drafts[i].matching, drafter.most, static_cast<int>(count - i) - 1});
      for (int drafted = 0; drafted <= useful; ++drafted) {
        rest[i] = std::min(rest[i], drafter.prices->step(drafted, drafted + 1) +
                                        rest[i + static_cast<std::size_t>(drafted) + 1]);
      }
    }
  }
  return rest[0];
}

std::vector<int> lengths_of(const Trace& trace, const std::vector<int>& gammas) {
  const int longest = longest_draft(trace);
  std::vector<int> out;
  for (const int gamma : gammas) {
    if (gamma <= longest) out.push_back(gamma);
  }
  return out;
}

/// The time of each prompt with a constant length, [prompts].
std::vector<double> times_with_length(const PricedTrace& priced, int gamma) {
  std::vector<double> out;
  for (const PromptTexts& prompt : texts_by_prompt(*priced.trace)) {
    double sum = 0;
    for (const std::size_t text : prompt.texts)
      sum += priced.prices.time(replay_one(priced.trace->texts[text], {gamma, {}}));
    out.push_back(sum);
  }
  return out;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The constant length that makes all texts fastest. `lengths` is not empty.
Oracle best_length(const PricedTrace& priced, const std::vector<int>& lengths) {
  Oracle best{"length", {}, {}};
  for (const int gamma : lengths) {
    std::vector<double> ns = times_with_length(priced, gamma);
    if (!best.ns.empty() && sum_of(ns) >= sum_of(best.ns)) continue;
    best.ns = std::move(ns);
    best.choice = {{"gamma", gamma}};
  }
  return best;
}

Oracle best_length_by_prompt(const PricedTrace& priced, const std::vector<int>& lengths) {
  const std::vector<PromptTexts> prompts = texts_by_prompt(*priced.trace);
  std::vector<int> chosen(prompts.size());
  Oracle best{
      "length_by_prompt", std::vector<double>(prompts.size(), std::numeric_limits<double>::infinity()), {}};
  for (const int gamma : lengths) {
    const std::vector<double> ns = times_with_length(priced, gamma);
    for (std::size_t i = 0; i < ns.size(); ++i) {
      if (ns[i] < best.ns[i]) best.ns[i] = ns[i], chosen[i] = gamma;
    }
  }
  json gammas = json::object();
  for (std::size_t i = 0; i < prompts.size(); ++i) gammas[prompts[i].prompt] = chosen[i];
  best.choice = {{"gammas", gammas}};
  return best;
}

/// The time of each prompt with the best steps, [prompts]. The traces have the same texts.
std::vector<double> times_of_best_steps(std::span<const PricedTrace* const> traces, int most) {
  std::vector<double> out;
  for (const PromptTexts& prompt : texts_by_prompt(*traces.front()->trace)) {
    double sum = 0;
    for (const std::size_t text : prompt.texts) {
      std::vector<DrafterOfText> drafters;
      for (const PricedTrace* priced : traces)
        drafters.push_back(
            {&priced->trace->texts[text], &priced->prices, std::min(most, priced->prices.longest())});
      sum += least_time(drafters);
    }
    out.push_back(sum);
  }
  return out;
}

}  // namespace

std::vector<Oracle> oracles_of(const PricedTrace& own, std::span<const PricedTrace> all,
                               const std::vector<int>& gammas) {
  const std::vector<int> lengths = lengths_of(*own.trace, gammas);
  SPECLAB_CHECK(!lengths.empty(), "no length of {} drafts", own.trace->data->id());
  const int most = *std::ranges::max_element(gammas);
  const PricedTrace* const alone[] = {&own};
  std::vector<Oracle> out;
  out.push_back({"step", times_of_best_steps(alone, most), json::object()});
  out.push_back(best_length(own, lengths));
  out.push_back(best_length_by_prompt(own, lengths));
  std::vector<const PricedTrace*> drafters;
  for (const PricedTrace& priced : all) {
    if (same_texts(*priced.trace, *own.trace)) drafters.push_back(&priced);
  }
  if (drafters.size() < 2) return out;
  Oracle steps{"drafter_by_step", times_of_best_steps(drafters, most), json::object()},
      best{"drafter", {}, {}};
  steps.choice["cases"] = json::array();
  for (const PricedTrace* priced : drafters) {
    steps.choice["cases"].push_back(priced->trace->data->id());
    const std::vector<int> own_lengths = lengths_of(*priced->trace, gammas);
    if (own_lengths.empty()) continue;
    Oracle with_best_length = best_length(*priced, own_lengths);
    if (!best.ns.empty() && sum_of(with_best_length.ns) >= sum_of(best.ns)) continue;
    best.ns = std::move(with_best_length.ns);
    best.choice = {{"case", priced->trace->data->id()}, {"gamma", with_best_length.choice["gamma"]}};
  }
  out.push_back(std::move(steps));
  out.push_back(std::move(best));
  return out;
}

void add_regret(const CaseData& data, const std::vector<double>& ns, const std::vector<double>& tokens,
                const Oracle& oracle, json& regret, json& ci95) {
  std::vector<double> more(ns.size());
  for (std::size_t i = 0; i < ns.size(); ++i) more[i] = 1e-6 * (ns[i] - oracle.ns[i]);
  const MetricValue value = ratio_of_sums(data, more, tokens);
  regret[oracle.name] = value.value;
  ci95[oracle.name] = value.ci95;
}

}  // namespace speclab
