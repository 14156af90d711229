#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Statistics of measurements: order statistics, confidence intervals, the paired speedup, verdicts.
///
/// Everything is deterministic: a bootstrap is a pure function of its data and its seed, on every platform.
/// Functions of samples or times throw Error for a value that is not finite. All functions throw Error for a
/// level outside (0, 1). Functions that must return a number throw Error for an empty sample, too.
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
/// Mean without the floor(share n) smallest and the floor(share n) largest values; share in [0, 0.5).
double trimmed_mean(std::span<const double> sample, double share);

/// Wilson's score interval for a proportion (Wilson 1927). It stays within [0, 1] and is also sensible if no
/// trial or every trial succeeds. Absent without trials. It assumes independent trials. Acceptance tests
/// within one prompt are not independent, so report a cluster bootstrap beside it.
std::optional<Interval> wilson_interval(double successes, double trials, double level = 0.95);

struct BootstrapOptions {
  int resamples = 2000;
  std::uint64_t seed = 20260101;
  double level = 0.95;
};

/// An interval over fewer clusters (prompts) than this number is too narrow. Print the number of clusters
/// beside such an interval.
inline constexpr std::size_t kFewClusters = 10;

/// Bootstrap percentile interval (Efron 1979) of any statistic over clusters (prompts). The statistic gets
/// the drawn cluster numbers: as many as there are clusters, with repetition. It may return NaN when it is
/// undefined (0 / 0); such resamples are left out. Absent with fewer than two clusters, or when more than
/// half of the resamples are undefined.
using ClusterStatistic = std::function<double(std::span<const std::size_t> clusters)>;
std::optional<Interval> bootstrap_interval(std::size_t clusters, const ClusterStatistic& statistic,
                                           const BootstrapOptions& options = {});

struct Value {
  double value;
  std::optional<Interval> ci;
};

/// Sum of numerators / sum of denominators, with a bootstrap interval over prompts. Entry i of both lists
/// belongs to prompt i. Used for tokens per second, milliseconds per token, tau, and c (draft time / target
/// time). Absent when the denominators sum to 0. Throws Error for unequal lengths, negative denominators or
/// values that are not finite.
std::optional<Value> ratio_of_sums(std::span<const double> numerators, std::span<const double> denominators,
                                   const BootstrapOptions& options = {});

/// Times of one case, [prompts][repeats], in any unit. Every prompt has the same number of repeats.
using Times = std::vector<std::vector<double>>;

struct Ratio {
  double value;
  std::optional<Interval> ci;   ///< bootstrap over prompts; absent with one prompt
  std::vector<double> repeats;  ///< the ratio of each repeat; `value` is their median
  std::size_t prompts = 0;      ///< number of prompts behind the interval
};

/// Compares the times of two cases. For each repeat it divides the base's sum over all prompts by the test's
/// sum. The value is the median of these ratios over repeats. The interval is a bootstrap over prompts; a
/// drawn prompt brings the times of both cases and of all repeats. A ratio of times is a ratio of speeds only
/// if both cases have the same texts. The caller passes the same prompts in the same order. Throws Error
/// unless both cases have equal numbers of prompts and of repeats.
Ratio paired_ratio(const Times& base, const Times& test, const BootstrapOptions& options = {});

/// Tokens that one case decoded and the time that it took, [prompts][repeats]. Zeros are allowed: a text may
/// end with its first token, which comes from prefill and is not counted here.
struct Decoded {
  Times seconds;
  Times tokens;
};

/// The speedup: time per emitted token of the base / time per emitted token of the test. Above 1 the test is
/// faster. For each repeat, seconds and tokens are each summed over prompts. The value is the median over
/// repeats. The interval is computed as in paired_ratio. With equal numbers of tokens the result is the ratio
/// of the summed times, bit for bit. Absent when the base or the test has no token or no time in some repeat.
/// Throws Error like paired_ratio, and for negative or infinite values.
std::optional<Ratio> paired_speedup(const Decoded& base, const Decoded& test,
                                    const BootstrapOptions& options = {});

/// Measures by how much two repeats of the *same* case differ by chance. For each pair of repeats (i, j) of a
/// case it takes x = |log(sum of repeat i / sum of repeat j)|. Let X be the 95 % quantile of x over the pairs
/// of repeats of all cases. Returns the fraction exp(X) - 1. A speedup that is this close to 1 is not called
/// a difference. Absent when no case has two repeats that decoded something.
std::optional<double> noise_floor(std::span<const Times> cases);

enum class Verdict { kFaster, kSlower, kSame, kUnclear };
std::string_view to_string(Verdict verdict);  ///< "faster", "slower", "same", "unclear"

/// Judges a speedup by its interval and the noise band [1 / (1 + noise), 1 + noise]. Faster or slower: the
/// interval lies wholly outside the band. Same: it lies wholly inside. Unclear: it crosses an end of the
/// band.
Verdict verdict(Interval speedup, double noise);

}  // namespace speclab::stats
