// Metrics of the text: how much was emitted, and whether it equals the text of the reference.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

std::vector<double> per_prompt(const CaseData& data, double (*value)(const LineRecord&)) {
  std::vector<double> sums(data.lines.size(), 0.0);
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) { sums[prompt] += value(line); });
  return sums;
}

MetricValue tokens(const CaseData& data) { return {total_tokens(data), nullptr}; }

MetricValue steps(const CaseData& data) {
  double sum = 0;
  for (const double count : per_prompt(data, step_count)) sum += count;
  return {sum, nullptr};
}

MetricValue tau(const CaseData& data) {
  return ratio_of_sums(data, per_prompt(data, emitted_tokens), per_prompt(data, step_count));
}

MetricValue tau_variance(const CaseData& data) {
  std::vector<double> emitted;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) emitted.push_back(step.emitted);
    }
  });
  if (emitted.size() < 2) return {};
  return {stats::variance(emitted), nullptr};
}

/// Counts the 4-grams that end in an emitted token of the line, and those among them that also occur earlier
/// in prompt or text.
std::pair<double, double> copied_ngrams(const LineRecord& line) {
  constexpr std::size_t kLength = 4;
  std::pair<double, double> all_and_copied{0, 0};
  for (const GenerationRecord& turn : line.turns) {
    if (turn.context.empty()) continue;
    std::vector<Token> text = turn.context;
    text.insert(text.end(), turn.tokens.begin(), turn.tokens.end());
    std::set<std::array<Token, kLength>> seen;
    for (std::size_t end = kLength; end <= text.size(); ++end) {
      std::array<Token, kLength> ngram;
      std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(end - kLength), kLength, ngram.begin());
      const bool is_new = seen.insert(ngram).second;
      if (end <= turn.context.size()) continue;
      ++all_and_copied.first;
      all_and_copied.second += is_new ? 0 : 1;
    }
  }
  return all_and_copied;
}

MetricValue copied_4grams(const CaseData& data) {
  return ratio_of_sums(data,
                       per_prompt(data, [](const LineRecord& line) { return copied_ngrams(line).second; }),
                       per_prompt(data, [](const LineRecord& line) { return copied_ngrams(line).first; }));
}

/// Calls visit(index of the prompt, line of the reference, line of the case) for every finished line of the
/// case whose prompt and seed the reference has. Every repeat is paired with the first repeat of the
/// reference, because all repeats of the reference have the same text.
template <class Visit>
void for_each_pair(const CaseData& data, Visit visit) {
  std::map<std::string, const PromptLines*> reference;
  for (std::size_t i = 0; i < data.reference->prompts.size(); ++i)
    reference[data.reference->prompts[i]] = data.reference->lines[i].get();
  for (std::size_t i = 0; i < data.lines.size(); ++i) {
    const auto found = reference.find(data.prompts[i]);
    if (found == reference.end()) continue;
    for (const auto& own : *data.lines[i]) {
      const auto base = std::ranges::find_if(
          *found->second, [&](const auto& of_seed) { return of_seed.front().seed == own.front().seed; });
      if (base == found->second->end()) continue;  // the line of the reference has failed
      for (const LineRecord& line : own) visit(i, base->front(), line);
    }
  }
}

MetricValue texts_equal(const CaseData& data) {
  if (!data.reference) return {};
  bool any = false, all = true;
  for_each_pair(data, [&](std::size_t, const LineRecord& reference, const LineRecord& line) {
    any = true;
    all = all && reference.tokens() == line.tokens();
  });
  return {any ? json(all) : json(nullptr), nullptr};
}

MetricValue matches_reference(const CaseData& data) {
  bool any = false, all = true;
  for (const auto& prompt : data.lines) {
    for (const auto& seed : *prompt) {
      for (const LineRecord& line : seed) {
        if (!line.matches_reference) continue;
        any = true;
        all = all && *line.matches_reference;
      }
    }
  }
  return {any ? json(all) : json(nullptr), nullptr};
}

MetricValue first_divergence(const CaseData& data) {
  json least;
  for (const auto& prompt : data.lines) {
    for (const auto& seed : *prompt) {
      for (const LineRecord& line : seed) {
        if (line.first_divergence && (least.is_null() || *line.first_divergence < least.get<int>()))
          least = *line.first_divergence;
      }
    }
  }
  return {least, nullptr};
}

/// Calls visit(index of the prompt, value) for each drafted token of repeat 0 whose value is known. An
/// unknown value is negative.
template <class Visit>
void for_each_known(const CaseData& data, double DraftedToken::* value, Visit visit) {
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        for (const DraftedToken& token : step.drafted) {
          if (token.*value >= 0) visit(prompt, token.*value);
        }
      }
    }
  });
}

/// The mean of the finite values.
template <double DraftedToken::* value>
MetricValue mean_of_known(const CaseData& data) {
  std::vector<double> sum(data.lines.size(), 0.0), count = sum;
  for_each_known(data, value, [&](std::size_t prompt, double one) {
    if (!std::isfinite(one)) return;
    sum[prompt] += one;
    ++count[prompt];
  });
  return ratio_of_sums(data, sum, count);
}

MetricValue kl_infinite(const CaseData& data) {
  std::int64_t all = 0, infinite = 0;
  for_each_known(data, &DraftedToken::kl, [&](std::size_t, double kl) {
    ++all;
    infinite += std::isfinite(kl) ? 0 : 1;
  });
  if (all == 0) return {};
  return {infinite, nullptr};
}

/// Compares the text with the reference's text token by token, up to the end of the shorter text. Null for
/// lossless cases, and for sampling under which a lossless rule would not give equal texts.
MetricValue token_disagreement(const CaseData& data) {
  const json& options = data.options();
  const bool comparable = options.value("temperature", 0.0) == 0 || options.value("coins", "") == "gumbel";
  if (!data.reference || data.config.value("loss_class", "") != "L3" || !comparable) return {};
  std::vector<double> different(data.lines.size(), 0.0), count = different;
  for_each_pair(data, [&](std::size_t i, const LineRecord& reference, const LineRecord& line) {
    if (line.repeat > 0) return;
    const std::vector<Token> a = reference.tokens(), b = line.tokens();
    const std::size_t common = std::min(a.size(), b.size());
    for (std::size_t t = 0; t < common; ++t) different[i] += a[t] != b[t];
    count[i] += static_cast<double>(common);
  });
  return ratio_of_sums(data, different, count);
}

MetricValue target_nll(const CaseData& data) { return mean_of_prompts(data, data.nll); }

MetricValue perplexity(const CaseData& data) {
  const auto exponential = [](const json& nats) { return json(std::exp(nats.get<double>())); };
  const MetricValue nll = target_nll(data);
  if (nll.value.is_null()) return {};
  MetricValue result{exponential(nll.value), nullptr};
  for (const json& end : nll.ci95) result.ci95.push_back(exponential(end));
  return result;
}

const std::array kTextMetrics = {
    Metric{"tokens", "tokens", "emitted tokens without the first one of each turn, from prefill; one repeat",
           estimator::kCount, kNone, false, tokens},
    Metric{"steps", "steps", "steps (one target forward each), one repeat", estimator::kCount, kNone, false,
           steps},
    Metric{"tau", "tokens/step", "emitted tokens per step, bonus or correction included",
           estimator::kRatioOfSums, Better::higher, false, tau},
    Metric{"tau_variance", "", "variance over steps of the emitted tokens", estimator::kVariance, kNone,
           false, tau_variance},
    Metric{"copied_4grams", "",
           "share of the emitted tokens that end a 4-gram which also occurs earlier in prompt or text",
           estimator::kRatioOfSums, kNone, false, copied_4grams},
    Metric{"texts_equal", "",
           "every text equals the reference's text, token for token; if not, times are compared per emitted "
           "token only",
           estimator::kComparison, kNone, false, texts_equal},
    Metric{
        "matches_reference", "",
        "every line equals its autoregressive reference (ids and logits rows; coupled sampling: ids only); "
        "null if equality is not promised",
        estimator::kComparison, kNone, false, matches_reference},
    Metric{"first_divergence", "token", "smallest index at which a line differs from its reference",
           estimator::kComparison, kNone, false, first_divergence},
    Metric{"distance", "",
           "lossy rules: mean total variation between p and the output law of the rule, at tested positions",
           estimator::kMeanOverTests, Better::lower, false, mean_of_known<&DraftedToken::distance>},
    Metric{"kl", "nats",
           "lossy rules: mean KL(law || p) of the output law of the rule, at the tested positions where it "
           "is finite",
           estimator::kMeanOverTests, Better::lower, false, mean_of_known<&DraftedToken::kl>},
    Metric{"kl_infinite", "positions",
           "lossy rules: tested positions left out of kl, because the output law emits a token whose p is 0",
           estimator::kCount, Better::lower, false, kl_infinite},
    Metric{"token_disagreement", "",
           "lossy rules, greedy or coupled: share of tokens that differ from the reference text at the same "
           "index",
           estimator::kRatioOfSums, Better::lower, false, token_disagreement},
    Metric{
        "target_nll", "nats/token",
        "mean -log p of the emitted text under the target at temperature 1; lossy cases and their references",
        estimator::kMeanOverTokens, Better::lower, false, target_nll},
    Metric{"perplexity", "", "exp(target_nll): perplexity of the emitted text under the target",
           estimator::kMeanOverTokens, Better::lower, false, perplexity},
};

}  // namespace

std::span<const Metric> text_metrics() { return kTextMetrics; }

}  // namespace speclab
