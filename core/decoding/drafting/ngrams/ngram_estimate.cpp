#include "core/decoding/drafting/ngrams/ngram_estimate.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.h"

namespace speclab {
namespace {

// Katz: if the law of the shorter context gives less than this to the tokens that never followed the longer
// context, that mass is rounding noise, and these tokens get no share.
constexpr double kNothingLeft = 1e-9;

}  // namespace

NgramDiscounts kneser_ney_discounts(const CountNumbers& n, bool modified) {
  NgramDiscounts out;
  const bool single = n[1] > 0 && n[2] > 0;
  const double d = single ? static_cast<double>(n[1]) / (n[1] + 2.0 * n[2]) : .5;
  out.of.fill(d);
  if (!modified) return out;
  std::array<double, 4> three{0, .5, 1, 1.5};
  if (single && n[3] > 0 && n[4] > 0) {
    std::array<double, 4> estimate{};
    bool valid = true;
    for (std::size_t r = 1; r <= 3; ++r) {
      const double count = static_cast<double>(r);
      estimate[r] = count - (count + 1) * d * n[r + 1] / n[r];
      valid = valid && estimate[r] > 0 && estimate[r] <= count;
    }
    if (valid) three = estimate;
  }
  for (std::size_t r = 1; r < out.of.size(); ++r) out.of[r] = three[std::min<std::size_t>(r, 3)];
  return out;
}

NgramDiscounts katz_discounts(const CountNumbers& n) {
  NgramDiscounts out;
  for (std::size_t k = n.size() - 2; k >= 1; --k) {
    if (!std::all_of(n.begin() + 1, n.begin() + static_cast<std::ptrdiff_t>(k) + 2,
                     [](auto c) { return c > 0; }))
      continue;
    const double a = static_cast<double>(k + 1) * n[k + 1] / n[1];
    bool valid = a < 1;
    out.of.fill(0);
    for (std::size_t r = 1; r <= k && valid; ++r) {
      const double count = static_cast<double>(r);
      const double keeps = ((count + 1) * n[r + 1] / (count * n[r]) - a) / (1 - a);
      valid = keeps > 0 && keeps <= 1;
      out.of[r] = count * (1 - keeps);
    }
    if (valid) return out;
  }
  return kneser_ney_discounts(n, false);
}

template <class Counts>
NgramEstimate<Counts>::NgramEstimate(int vocab, int order, NgramSmoothing smoothing)
    : vocab_(vocab),
      order_(order),
      smoothing_(smoothing),
      values_(static_cast<std::size_t>(vocab)),
      stamps_(static_cast<std::size_t>(vocab)) {
  SPECLAB_CHECK(vocab >= 1 && order >= 1, "vocabulary {}, order {}", vocab, order);
  touched_.reserve(static_cast<std::size_t>(vocab));
}

template <class Counts>
void NgramEstimate<Counts>::start() {
  if (++stamp_ == 0) {  // the stamp has wrapped around
    std::fill(stamps_.begin(), stamps_.end(), 0);
    stamp_ = 1;
  }
  touched_.clear();
  rest_ = 1;
  known_ = 0;
}

template <class Counts>
double& NgramEstimate<Counts>::touch(Token token) {
  const auto at = static_cast<std::size_t>(token);
  if (stamps_[at] != stamp_) {
    stamps_[at] = stamp_;
    values_[at] = rest_ * base(token);
    touched_.push_back(token);
  }
  return values_[at];
}

template <class Counts>
void NgramEstimate<Counts>::scale(double factor) {
  for (const Token token : touched_) values_[static_cast<std::size_t>(token)] *= factor;
  rest_ *= factor;
}

// Turns the law of the shorter context into the law of the context `node`, which has order - 1 tokens.
// Returns false when no token followed this context.
template <class Counts>
bool NgramEstimate<Counts>::refine(const Counts& counts, typename Counts::Node node, int order) {
  const bool katz = smoothing_ == NgramSmoothing::katz;
  const bool by_count = katz || order == order_;
  const CountsOfCounts& numbers = counts.counts_of_counts(order);
  const NgramDiscounts lost = katz ? katz_discounts(numbers.by_count)
                                   : kneser_ney_discounts(by_count ? numbers.by_count : numbers.by_left,
                                                          smoothing_ == NgramSmoothing::modified_kneser_ney);
  double total = 0, all_lost = 0, seen_before = 0;
  counts.for_each_child(node, [&](Token token, std::uint32_t count, std::uint32_t left) {
    const std::uint32_t r = by_count ? count : left;
    total += r;
    all_lost += lost(r);
    if (katz) seen_before += touch(token);
  });
  if (total == 0) return false;
  const double unseen = 1 - seen_before;
  const bool shares = !katz || unseen > kNothingLeft;
  const double kept = shares ? total : total - all_lost;  // divisor of the discounted counts
  scale(shares ? all_lost / total / (katz ? unseen : 1) : 0);
  counts.for_each_child(node, [&](Token token, std::uint32_t count, std::uint32_t left) {
    const std::uint32_t r = by_count ? count : left;
    double& value = touch(token);
    value = (katz ? 0 : value) + (r - lost(r)) / kept;
  });
  return true;
}

template <class Counts>
void NgramEstimate<Counts>::freeze(const Counts& counts) {
  base_.clear();
  start();
  refine(counts, Counts::kRoot, 1);
  std::vector<double> law(static_cast<std::size_t>(vocab_));
  probabilities(law);
  base_log_.resize(law.size());
  log_probabilities(base_log_);
  base_ = std::move(law);
  base_order_.resize(base_.size());
  std::iota(base_order_.begin(), base_order_.end(), 0);
  std::stable_sort(base_order_.begin(), base_order_.end(),
                   [&](Token a, Token b) { return base(a) > base(b); });
  start();
}

template <class Counts>
void NgramEstimate<Counts>::condition(const Counts& counts, TokenSpan context) {
  start();
  if (base_.empty()) refine(counts, Counts::kRoot, 1);
  const int longest =
      static_cast<int>(std::min<std::size_t>(context.size(), static_cast<std::size_t>(order_ - 1)));
  for (int length = 1; length <= longest; ++length) {
    auto node = Counts::kRoot;
    for (const Token token : context.last(static_cast<std::size_t>(length))) {
      node = counts.child(node, token);
      if (node == Counts::kNone) return;
    }
    if (!refine(counts, node, length + 1)) return;
    known_ = length;
  }
}

template <class Counts>
double NgramEstimate<Counts>::prob(Token token) const {
  SPECLAB_CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
  return touched(token) ? values_[static_cast<std::size_t>(token)] : rest_ * base(token);
}

template <class Counts>
Token NgramEstimate<Counts>::best() const {
  // Finds the best token that was not touched, then compares it with the touched ones.
  Token best = -1;
  if (base_order_.empty()) {
    for (Token token = 0; token < vocab_ && best < 0; ++token) best = touched(token) ? -1 : token;
  } else {
    const auto first =
        std::find_if(base_order_.begin(), base_order_.end(), [&](Token t) { return !touched(t); });
    if (first != base_order_.end()) best = *first;
  }
  double most = best < 0 ? -1 : prob(best);
  for (const Token token : touched_) {
    const double p = values_[static_cast<std::size_t>(token)];
    if (p > most || (p == most && token < best)) best = token, most = p;
  }
  return best;
}

template <class Counts>
void NgramEstimate<Counts>::probabilities(std::span<double> out) const {
  SPECLAB_CHECK(out.size() == values_.size(), "{} of {}", out.size(), vocab_);
  for (Token token = 0; token < vocab_; ++token) out[static_cast<std::size_t>(token)] = rest_ * base(token);
  for (const Token token : touched_)
    out[static_cast<std::size_t>(token)] = values_[static_cast<std::size_t>(token)];
}

template <class Counts>
void NgramEstimate<Counts>::log_probabilities(std::span<float> out) const {
  SPECLAB_CHECK(out.size() == values_.size(), "{} of {}", out.size(), vocab_);
  if (base_log_.empty() || base_.empty()) {
    std::fill(out.begin(), out.end(), static_cast<float>(std::log(rest_ / vocab_)));
  } else {
    const auto more = static_cast<float>(std::log(rest_));
    std::transform(base_log_.begin(), base_log_.end(), out.begin(), [=](float log) { return log + more; });
  }
  for (const Token token : touched_)
    out[static_cast<std::size_t>(token)] =
        static_cast<float>(std::log(values_[static_cast<std::size_t>(token)]));
}

template class NgramEstimate<NgramCounts>;
template class NgramEstimate<NgramFile>;

}  // namespace speclab
