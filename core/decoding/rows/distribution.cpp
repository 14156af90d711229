#include "core/decoding/rows/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/exp_log.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rows/top_kernels.h"

namespace speclab {
namespace {

[[noreturn]] void refuse(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      throw Error(
          {fmt::format("logits of the model, entry {} of {}", i, logits.size()), fmt::format("{}", logits[i]),
           "finite numbers (or -inf for a banned token)",
           "The weights or the numerics class are broken: check the model file with `speclab model`."});
    }
  }
  throw Error({fmt::format("logits of the model, {} entries", logits.size()), "-inf everywhere",
               "at least one token that is allowed", "Ban fewer tokens, or lower the minimum length."});
}

/// The mass of a weight as an integer, see SamplingParams::top_p. A GPU computes the same numbers
/// (core/backend/cuda/kernels/law.h).
std::uint64_t mass_of(float weight) { return static_cast<std::uint64_t>(weight * 0x1p44f); }

row_kernels::Law law(const Distribution& d) { return {d.weights(), 1 / d.sum()}; }

}  // namespace

// The bar is a value that `count` block maxima reach. A block whose maximum is below the bar holds none of
// the wanted entries. So few entries have to be looked at when `count` is small.
void first_entries(std::span<const float> row, std::span<const float> by_block, std::size_t count,
                   std::vector<float>& scratch, std::vector<TopEntry>& out) {
  out.clear();
  count = std::min(count, row.size());
  if (count == 0) return;
  const std::size_t blocks = (row.size() + row_kernels::kBlock - 1) / row_kernels::kBlock;
  float bar = -std::numeric_limits<float>::infinity();
  scratch.resize(2 * blocks);
  const std::span<float> read(scratch.data(), blocks), ordered(scratch.data() + blocks, blocks);
  if (by_block.empty()) {
    row_kernels::block_max(row, read);
    by_block = read;
  }
  if (count <= row_kernels::kSumLanes && count <= blocks) {
    bar = row_kernels::reached_by(by_block, count);
  } else if (count <= blocks) {
    std::transform(
        by_block.begin(), by_block.end(), ordered.begin(),  // NaN would break the order
        [](float value) { return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value; });
    const auto nth = ordered.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(ordered.begin(), nth, ordered.end(), std::greater<>());
    bar = *nth;
  }
  row_kernels::append_reaching(row, by_block, bar, out);
  if (count < out.size()) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), comes_first);
    out.resize(count);
  }
}

void Distribution::assign_one_hot(Token token, int vocab) {
  SPECLAB_CHECK(token >= 0 && token < vocab, "token {} of {}", token, vocab);
  weights_.clear();
  sum_ = 1;
  one_hot_ = token;
  vocab_ = vocab;
}

float Distribution::take_out(Token token) {
  SPECLAB_CHECK(!one_hot() && token >= 0 && token < vocab_, "token {} of {}, one-hot {}", token, vocab_,
                one_hot());
  const float weight = std::exchange(weights_[static_cast<std::size_t>(token)], 0.0f);
  sum_ = row_kernels::sum(weights_);
  return weight;
}

void Distribution::put_back(Token token, float weight, double sum) {
  weights_[static_cast<std::size_t>(token)] = weight;
  sum_ = sum;
}

void Distribution::assign_without(const Distribution& other, std::span<const Token> tokens, double sum) {
  weights_ = other.weights_;
  for (const Token token : tokens) weights_[static_cast<std::size_t>(token)] = 0;
  sum_ = sum;
  one_hot_ = -1;
  vocab_ = other.vocab_;
}

void Distribution::assign_weights(std::span<const double> weights) {
  for (const double w : weights) SPECLAB_CHECK(w >= 0 && std::isfinite(w), "weight {}", w);
  weights_.assign(weights.begin(), weights.end());
  sum_ = row_kernels::sum(weights_);
  SPECLAB_CHECK(sum_ > 0 && std::isfinite(sum_), "weights sum to {}", sum_);
  one_hot_ = -1;
  vocab_ = static_cast<int>(weights.size());
}

void Distribution::assign_logits(std::span<const float> logits, const SamplingParams& params,
                                 std::span<const Token> ids, int vocab) {
  SPECLAB_CHECK(ids.empty() ? static_cast<int>(logits.size()) == vocab : ids.size() == logits.size(),
                "{} logits, {} ids, vocabulary {}", logits.size(), ids.size(), vocab);
  bool valid = false;
  const float max = row_kernels::max(logits, &valid);
  if (!valid || max == -std::numeric_limits<float>::infinity()) refuse(logits);
  const auto token_of = [&](std::size_t i) { return ids.empty() ? static_cast<Token>(i) : ids[i]; };
  if (params.temperature <= 0) {
    assign_one_hot(token_of(row_kernels::find(logits, max)), vocab);
    return;
  }
  one_hot_ = -1;
  vocab_ = vocab;
  const float scale = static_cast<float>(std::min(1 / params.temperature, 1e30));
  weights_.resize(static_cast<std::size_t>(vocab));
  std::span<float> exps = weights_;
  if (!ids.empty()) {
    compact_.resize(logits.size());
    exps = compact_;
  }
  sum_ = row_kernels::exp_row(logits, max, scale, exps);
  const bool few = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (few || params.top_p < 1) {
    truncate(logits, exps, max, scale, few ? static_cast<std::size_t>(params.top_k) : logits.size(),
             params.top_p);
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    for (const TopEntry& e : kept_)
      weights_[static_cast<std::size_t>(token_of(static_cast<std::size_t>(e.index)))] = e.value;
    sum_ = row_kernels::sum(weights_);
  } else if (!ids.empty()) {
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    for (std::size_t i = 0; i < ids.size(); ++i) weights_[static_cast<std::size_t>(ids[i])] = exps[i];
  }
}

/// Leaves in kept_ the entries (weight, row index) that survive top-k, then top-p. Entries are ordered by
/// logit and not by weight, because in floats different logits may have equal weights.
void Distribution::truncate(std::span<const float> logits, std::span<const float> exps, float max,
                            float scale, std::size_t top_k, double top_p) {
  const auto weight = [&](const TopEntry& e) { return exps[static_cast<std::size_t>(e.index)]; };
  std::uint64_t before = 0;  // mass of the entries that are certainly kept: kept_[0, certain)
  std::size_t certain = 0;
  std::uint64_t total = 0;
  const auto enough = [&](std::uint64_t mass) {
    return static_cast<double>(mass) >= top_p * static_cast<double>(total);
  };
  if (top_k < logits.size()) {
    first_entries(logits, {}, top_k, maxima_, kept_);
    for (const TopEntry& e : kept_) total += mass_of(weight(e));
  } else {
    // Sums the mass by bins of the logit. Only the bin in which the mass reaches top_p has to be sorted.
    constexpr int kBins = 4096;
    const float bins_per_unit = scale * 47;  // the bins reach down to exponent -87; below it weights are 0
    const auto bin_of = [&](float z) {
      return static_cast<int>(std::min((max - z) * bins_per_unit, kBins - 1.0f));
    };
    bins_.assign(kBins, 0);
    for (std::size_t i = 0; i < logits.size(); ++i)
      bins_[static_cast<std::size_t>(bin_of(logits[i]))] += mass_of(exps[i]);
    for (const std::uint64_t mass : bins_) total += mass;
    int crossing = 0;
    while (crossing + 1 < kBins && !enough(before + bins_[static_cast<std::size_t>(crossing)])) {
      before += bins_[static_cast<std::size_t>(crossing++)];
    }
    kept_.clear();
    crossing_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const int bin = bin_of(logits[i]);
      if (bin <= crossing) (bin < crossing ? kept_ : crossing_).push_back({logits[i], static_cast<Token>(i)});
    }
    certain = kept_.size();
    kept_.insert(kept_.end(), crossing_.begin(), crossing_.end());
  }
  if (top_p < 1) {
    std::sort(kept_.begin() + static_cast<std::ptrdiff_t>(certain), kept_.end(), comes_first);
    std::size_t keep = certain;
    while (keep < kept_.size() && (keep == 0 || !enough(before))) before += mass_of(weight(kept_[keep++]));
    kept_.resize(keep);
  }
  for (TopEntry& e : kept_) e.value = weight(e);
}

void Distribution::top(int k, std::vector<Token>& out) const {
  out.clear();
  if (one_hot()) {
    if (k > 0) out.push_back(one_hot_);
    return;
  }
  thread_local std::vector<float> maxima;
  thread_local std::vector<TopEntry> entries;
  first_entries(weights_, {}, static_cast<std::size_t>(std::max(k, 0)), maxima, entries);
  std::sort(entries.begin(), entries.end(), comes_first);
  for (const TopEntry& e : entries) {
    if (e.value > 0) out.push_back(e.index);
  }
}

double Distribution::prob(Token token) const {
  SPECLAB_CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
  if (one_hot()) return token == one_hot_ ? 1 : 0;
  return static_cast<double>(weights_[static_cast<std::size_t>(token)]) / sum_;
}

Token Distribution::argmax() const {
  if (one_hot()) return one_hot_;
  bool valid = false;
  return static_cast<Token>(row_kernels::find(weights_, row_kernels::max(weights_, &valid)));
}

Token Distribution::sample(const Coins& coins, const Coins::Address& address) const {
  return one_hot() ? one_hot_ : static_cast<Token>(coins.categorical(weights_, address));
}

Token Distribution::sample_coupled(const Coins& coins, std::int64_t position, int stream) const {
  if (one_hot()) return one_hot_;
  const std::size_t winner = coins.race(position, weights_, stream);
  return winner < weights_.size() ? static_cast<Token>(winner) : argmax();
}

Token Distribution::sample_coupled_list(const Coins& coins, std::int64_t position, int streams) const {
  if (one_hot()) return one_hot_;
  std::size_t winner = weights_.size();
  float earliest = std::numeric_limits<float>::infinity();
  for (int stream = 0; stream < streams; ++stream) {
    float arrival = 0;
    const std::size_t token = coins.race(position, weights_, stream, &arrival);
    if (arrival < earliest || (arrival == earliest && token < winner)) winner = token, earliest = arrival;
  }
  return winner < weights_.size() ? static_cast<Token>(winner) : argmax();
}

int Distribution::rank(Token token) const {
  SPECLAB_CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
  if (one_hot()) return token == one_hot_ ? 0 : token + (token < one_hot_ ? 1 : 0);
  const auto index = static_cast<std::size_t>(token);
  return static_cast<int>(row_kernels::count_before(weights_, weights_[index], index));
}

double Distribution::entropy() const {
  return one_hot() ? 0 : exact_entropy(sum_, row_kernels::sum_w_log_w(weights_));
}

void Distribution::probabilities(std::vector<double>& out) const {
  out.assign(static_cast<std::size_t>(vocab_), 0.0);
  if (one_hot()) {
    out[static_cast<std::size_t>(one_hot_)] = 1;
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(weights_[i]) / sum_;
}

double overlap(const Distribution& p, const Distribution& q) {
  SPECLAB_CHECK(p.vocab() == q.vocab(), "rows of {} and {} tokens", p.vocab(), q.vocab());
  if (p.one_hot()) return q.prob(p.argmax());
  if (q.one_hot()) return p.prob(q.argmax());
  return row_kernels::sum_min(law(p), law(q));
}

double agreement(const Distribution& p, const Distribution& q) {
  SPECLAB_CHECK(p.vocab() == q.vocab(), "rows of {} and {} tokens", p.vocab(), q.vocab());
  if (p.one_hot()) return q.prob(p.argmax());
  if (q.one_hot()) return p.prob(q.argmax());
  return row_kernels::sum_product(law(p), law(q));
}

double total_variation(const Distribution& p, const Distribution& q) {
  return std::clamp(1 - overlap(p, q), 0.0, 1.0);
}

}  // namespace speclab
