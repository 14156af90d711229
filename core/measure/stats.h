#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Statistics of measurements: order statistics, intervals, the paired speedup of the record, verdicts.
///
/// Everything is deterministic: a bootstrap is a pure function of its data and its seed, on every platform.
/// Errors: an empty sample where a value is needed, a non-finite value, or a level outside (0, 1) throw
/// Error.
namespace speclab::stats {

struct Interval {
  double lo, hi;
};

double mean(std::span<const double> sample);
double variance(std::span<const double> sample);  ///< unbiased (n - 1); needs two values

/// Quantile by linear interpolation of the order statistics (Hyndman and Fan 1996, type 7). probability in
/// [0, 1].
double quantile(std::span<const double> sample, double probability);
double median(std::span<const double> sample);
/// Mean without floor(share n) of the smallest and as many of the largest values. share in [0, 0.5).
double trimmed_mean(std::span<const double> sample, double share);

/// Wilson's score interval for a proportion (Wilson 1927): never leaves [0, 1], sensible at 0 and at all
/// successes. Absent without trials. Assumes independent trials: for tests inside one prompt use a cluster
/// bootstrap beside it.
std::optional<Interval> wilson_interval(double successes, double trials, double level = 0.95);

struct BootstrapOptions {
  int resamples = 2000;
  std::uint64_t seed = 20260101;
  double level = 0.95;
};

/// An interval over fewer clusters (prompts) than this is too narrow: whoever prints it says how many there
/// were.
inline constexpr std::size_t kFewClusters = 10;

/// Percentile interval (Efron 1979) of any statistic over clusters (prompts). The statistic gets the drawn
/// cluster numbers, as many as there are clusters, with repetition; it may return NaN where it is undefined
/// (0 / 0), and such resamples are left out. Absent with fewer than two clusters, or when over half of the
/// resamples are undefined.
using ClusterStatistic = std::function<double(std::span<const std::size_t> clusters)>;
std::optional<Interval> bootstrap_interval(std::size_t clusters, const ClusterStatistic& statistic,
                                           const BootstrapOptions& options = {});

struct Value {
  double value;
  std::optional<Interval> ci;
};

/// sum of numerators / sum of denominators, one pair per prompt, with its bootstrap interval over prompts:
/// tokens per second, milliseconds per token, c, tau, a mean over positions ... Absent when the denominators
/// sum to 0. Throws Error for unequal lengths, negative denominators or non-finite values.
std::optional<Value> ratio_of_sums(std::span<const double> numerators, std::span<const double> denominators,
                                   const BootstrapOptions& options = {});

/// Times of one case.  [prompts][repeats], any unit; every prompt has the same number of repeats.
using Times = std::vector<std::vector<double>>;

struct Ratio {
  double value;
  std::optional<Interval> ci;   ///< prompt bootstrap; absent with one prompt
  std::vector<double> repeats;  ///< the ratio of each repeat; `value` is their median
  std::size_t prompts = 0;      ///< that the interval was drawn from
};

/// Sum over prompts of the base / sum over prompts of the test, per repeat; median over repeats; interval by
/// a bootstrap over prompts that keeps pairs and repeats together. Of times, it is a ratio of speeds only
/// where both have the same texts. Both must have the same prompts in the same order and the same number of
/// repeats; else Error.
Ratio paired_ratio(const Times& base, const Times& test, const BootstrapOptions& options = {});

/// What one case decoded and how long it took, [prompts][repeats]. Zeros are allowed: a text may end with its
/// first token, which prefill gave and nothing here counts.
struct Decoded {
  Times seconds;
  Times tokens;
};

/// The record's speedup: time per emitted token of the base / of the case. Seconds and tokens are each summed
/// over prompts, per repeat; median over repeats; interval as in paired_ratio. Where both have as many tokens
/// it is the ratio of the summed times, bit for bit. Above 1 = the case is faster. Absent when one of them
/// has no token or no time in some repeat. Throws Error as paired_ratio, and for negative or infinite values.
std::optional<Ratio> paired_speedup(const Decoded& base, const Decoded& test,
                                    const BootstrapOptions& options = {});

/// How far apart two repeats of the *same* case lie by chance: the 95 % quantile over pairs of repeats (i, j)
/// of |log(sum of repeat i / sum of repeat j)|, pooled over the given cases and returned as a fraction,
/// exp(.) - 1. A speedup within this of 1 is not called a difference. Absent when no case has two repeats.
std::optional<double> noise_floor(std::span<const Times> cases);

enum class Verdict { kFaster, kSlower, kSame, kUnclear };
std::string_view to_string(Verdict verdict);  ///< "faster", "slower", "same", "unclear"

/// Verdict about a speedup from its interval and a noise band [1 / (1 + noise), 1 + noise]: faster or slower
/// when the interval lies wholly outside the band, same when wholly inside, else unclear.
Verdict verdict(Interval speedup, double noise);

}  // namespace speclab::stats
