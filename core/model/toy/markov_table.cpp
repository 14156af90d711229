#include "core/model/toy/markov_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/base/bf16.h"
#include "core/base/error.h"

namespace speclab::toy {
namespace {

constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53;  // JSON readers keep such integers exact

/// Replaces each row by the mean of the rows whose contexts agree in the last `memory` symbols.
void forget(MarkovRows& rows, int memory) {
  const std::vector<double> law = stationary_contexts(rows);
  const int suffixes = count_contexts(rows.vocab, memory);
  const auto vocab = static_cast<std::size_t>(rows.vocab);
  std::vector<double> mean(static_cast<std::size_t>(suffixes) * vocab), mass(mean.size());
  for (int context = 0; context < rows.contexts(); ++context) {
    const std::size_t at = static_cast<std::size_t>(context % suffixes) * vocab;
    const double weight = law[static_cast<std::size_t>(context)];
    for (std::size_t symbol = 0; symbol < vocab; ++symbol) {
      mean[at + symbol] += weight * rows.row(context)[symbol];
      mass[at + symbol] += weight;
    }
  }
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = mass[i] > 0 ? mean[i] / mass[i] : 1 / static_cast<double>(vocab);
  for (std::size_t i = 0; i < rows.probability.size(); ++i) rows.probability[i] = mean[i % mean.size()];
}

std::vector<float> log_of(const MarkovRows& rows) {
  std::vector<float> logits;
  logits.reserve(rows.probability.size());
  for (int context = 0; context < rows.contexts(); ++context) {
    const std::span<const double> row = rows.row(context);
    const double most = *std::ranges::max_element(row);
    // Softmax of finite logits is never 0, and neither are the means of such rows.
    for (const double x : row) logits.push_back(static_cast<float>(std::log(x / most)));
  }
  return logits;
}

}  // namespace

void MarkovSpec::fields(OptionVisitor& visit) {
  visit("vocab", vocab, Range<int>{2, kMostContexts}, "number of symbols");
  visit("order", order, Range<int>{1, kHighestOrder},
        "number of last symbols that the next one depends on; a token is a list of that many symbols");
  visit("seed", seed, Range<std::int64_t>{0, kLargestSeed}, "seed of the table");
  visit("sharpness", sharpness, Range<double>{0, 40}, "logits are drawn from [-sharpness, sharpness]");
  visit("memory", memory, Range<int>{0, kHighestOrder},
        "number of last symbols that a row really depends on: rows that agree in them are averaged; 0: all");
  visit("noise", noise, Range<double>{0, 1}, "share of another table that is mixed into every row");
  visit("noise_seed", noise_seed, Range<std::int64_t>{0, kLargestSeed}, "seed of the noise; 0: seed + 1");
}

std::string describe(const MarkovSpec& spec) {
  std::string text = fmt::format("markov vocab={} order={} seed={} sharpness={}", spec.vocab, spec.order,
                                 spec.seed, spec.sharpness);
  if (spec.memory != 0) text += fmt::format(" memory={}", spec.memory);
  if (spec.noise != 0) text += fmt::format(" noise={}", spec.noise);
  if (spec.noise_seed != 0) text += fmt::format(" noise_seed={}", spec.noise_seed);
  return text;
}

std::vector<float> random_logits(int rows, int vocab, std::uint64_t seed, double sharpness) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab));
  for (float& logit : logits)
    logit = static_cast<float>(sharpness * (static_cast<double>(random() >> 11) * 0x1p-53 * 2 - 1));
  return logits;
}

MarkovRows softmax_rows(const MarkovTable& table) {
  MarkovRows rows{table.vocab, table.order, {}};
  const auto vocab = static_cast<std::size_t>(table.vocab);
  rows.probability.reserve(table.logits.size());
  for (std::size_t at = 0; at < table.logits.size(); at += vocab) {
    const std::span<const float> row = std::span(table.logits).subspan(at, vocab);
    const float most = *std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - most);
    for (const float logit : row)
      rows.probability.push_back(std::exp(static_cast<double>(logit) - most) / sum);
  }
  return rows;
}

MarkovTable make_markov_table(const MarkovSpec& spec) {
  const int contexts = count_contexts(spec.vocab, spec.order);
  if (spec.memory > spec.order) {
    throw Error({"memory of a Markov chain", fmt::format("{}", spec.memory),
                 fmt::format("at most {}, the order", spec.order), ""});
  }
  MarkovTable table{
      spec.vocab, spec.order,
      random_logits(contexts, spec.vocab, static_cast<std::uint64_t>(spec.seed), spec.sharpness)};
  const bool forgets = spec.memory != 0 && spec.memory < spec.order;
  if (forgets || spec.noise > 0) {
    MarkovRows rows = softmax_rows(table);
    if (forgets) forget(rows, spec.memory);
    if (spec.noise > 0) {
      const std::int64_t seed = spec.noise_seed != 0 ? spec.noise_seed : spec.seed + 1;
      const MarkovRows other = softmax_rows(
          {spec.vocab, spec.order,
           random_logits(contexts, spec.vocab, static_cast<std::uint64_t>(seed), spec.sharpness)});
      for (std::size_t i = 0; i < rows.probability.size(); ++i)
        rows.probability[i] = (1 - spec.noise) * rows.probability[i] + spec.noise * other.probability[i];
    }
    table.logits = log_of(rows);
  }
  for (float& logit : table.logits) logit = bf16_to_float(float_to_bf16(logit));
  return table;
}

}  // namespace speclab::toy
