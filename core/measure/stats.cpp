#include "core/measure/stats.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/base/error.h"

namespace speclab::stats {
namespace {

void require_sample(std::span<const double> sample, std::size_t least) {
  if (sample.size() < least) {
    throw Error({"sample", fmt::format("{} values", sample.size()), fmt::format("at least {}", least), ""});
  }
  for (double value : sample) {
    if (!std::isfinite(value)) throw Error({"sample", fmt::format("{}", value), "finite values", ""});
  }
}

void require_level(double level) {
  if (!(level > 0 && level < 1))
    throw Error({"confidence level", fmt::format("{}", level), "between 0 and 1", ""});
}

double sorted_quantile(std::span<const double> sorted, double probability) {
  const double place = probability * (sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}

/// Returns the number of repeats. Checks that the table is a full rectangle of finite positive values (or
/// zeros if allowed).
std::size_t repeats_of(const char* name, const Times& times, bool zero_allowed = false) {
  if (times.empty() || times[0].empty())
    throw Error({name, "no times", "at least one prompt and one repeat", ""});
  for (const auto& prompt : times) {
    if (prompt.size() != times[0].size()) {
      throw Error({name, fmt::format("{} and {} repeats", times[0].size(), prompt.size()),
                   "the same number of repeats of every prompt", ""});
    }
    for (double time : prompt) {
      if (!(time > 0 || (zero_allowed && time == 0)) || !std::isfinite(time))
        throw Error({name, fmt::format("{}", time),
                     zero_allowed ? "finite values of at least 0" : "positive times", ""});
    }
  }
  return times[0].size();
}

void require_pairs(const Times& base, const Times& test) {
  if (test.size() == base.size() && test[0].size() == base[0].size()) return;
  throw Error({"paired times",
               fmt::format("{} prompts x {} repeats and {} x {}", base.size(), base[0].size(), test.size(),
                           test[0].size()),
               "the same prompts and repeats in both cases",
               "Compare only prompts that both cases have finished."});
}

double sum_of_repeat(const Times& times, std::span<const std::size_t> prompts, std::size_t repeat) {
  double sum = 0;
  for (std::size_t prompt : prompts) sum += times[prompt][repeat];
  return sum;
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

}  // namespace

double mean(std::span<const double> sample) {
  require_sample(sample, 1);
  return std::accumulate(sample.begin(), sample.end(), 0.0) / sample.size();
}

double variance(std::span<const double> sample) {
  require_sample(sample, 2);
  const double center = mean(sample);
  double squares = 0;
  for (double value : sample) squares += (value - center) * (value - center);
  return squares / (sample.size() - 1);
}

double quantile(std::span<const double> sample, double probability) {
  require_sample(sample, 1);
  if (!(probability >= 0 && probability <= 1)) {
    throw Error({"probability of a quantile", fmt::format("{}", probability), "0 to 1", ""});
  }
  std::vector<double> sorted(sample.begin(), sample.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, probability);
}

double median(std::span<const double> sample) { return quantile(sample, 0.5); }

double trimmed_mean(std::span<const double> sample, double share) {
  SPECLAB_CHECK(share >= 0 && share < 0.5, "share {}", share);
  std::vector<double> sorted(sample.begin(), sample.end());
  std::sort(sorted.begin(), sorted.end());
  const auto cut = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return mean(std::span(sorted).subspan(cut, sorted.size() - 2 * cut));
}

std::optional<Interval> wilson_interval(double successes, double trials, double level) {
  require_level(level);
  if (!(successes >= 0 && successes <= trials) || !std::isfinite(trials)) {
    throw Error({"proportion", fmt::format("{} of {}", successes, trials), "0 <= successes <= trials", ""});
  }
  if (trials == 0) return std::nullopt;
  const double z = boost::math::quantile(boost::math::normal(), 0.5 + level / 2);
  const double rate = successes / trials, spread = z * z / trials;
  const double center = (rate + spread / 2) / (1 + spread);
  const double half = std::sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread);
  // Without successes the lower end is exactly 0. If all trials succeed, the upper end is exactly 1. Rounding
  // must not move these ends by a bit.
  return Interval{successes == 0 ? 0 : std::max(0.0, center - half),
                  successes == trials ? 1 : std::min(1.0, center + half)};
}

std::optional<Interval> bootstrap_interval(std::size_t clusters, const ClusterStatistic& statistic,
                                           const BootstrapOptions& options) {
  require_level(options.level);
  if (options.resamples < 1) {
    throw Error({"bootstrap resamples", fmt::format("{}", options.resamples), "at least 1", ""});
  }
  if (clusters < 2) return std::nullopt;
  std::mt19937_64 random(options.seed);  // the C++ standard fixes the numbers of this generator, but not
                                         // those of std's distributions
  std::vector<std::size_t> drawn(clusters);
  std::vector<double> values;
  values.reserve(options.resamples);
  for (int resample = 0; resample < options.resamples; ++resample) {
    for (auto& cluster : drawn) {
      cluster = static_cast<std::size_t>((static_cast<unsigned __int128>(random()) * clusters) >> 64);
    }
    const double value = statistic(drawn);
    if (std::isfinite(value)) values.push_back(value);
  }
  if (values.size() * 2 < static_cast<std::size_t>(options.resamples)) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Interval{sorted_quantile(values, (1 - options.level) / 2),
                  sorted_quantile(values, (1 + options.level) / 2)};
}

std::optional<Value> ratio_of_sums(std::span<const double> numerators, std::span<const double> denominators,
                                   const BootstrapOptions& options) {
  require_sample(numerators, 0);
  require_sample(denominators, 0);
  for (double value : denominators) {
    if (value < 0) throw Error({"denominator of a ratio", fmt::format("{}", value), "at least 0", ""});
  }
  if (numerators.size() != denominators.size()) {
    throw Error({"ratio of sums", fmt::format("{} and {} values", numerators.size(), denominators.size()),
                 "one pair per prompt", ""});
  }
  auto ratio = [&](std::span<const std::size_t> prompts) {
    double top = 0, bottom = 0;
    for (std::size_t prompt : prompts) {
      top += numerators[prompt];
      bottom += denominators[prompt];
    }
    return bottom > 0 ? top / bottom : std::numeric_limits<double>::quiet_NaN();
  };
  const double value = ratio(all_of(numerators.size()));
  if (std::isnan(value)) return std::nullopt;
  return Value{value, bootstrap_interval(numerators.size(), ratio, options)};
}

namespace {

/// Returns the median over repeats and its interval. `ratio` computes the ratio of one repeat over the drawn
/// prompts. If it returns NaN (undefined) for some repeat, the median is NaN too.
template <class RatioOfRepeat>
Ratio paired(std::size_t prompts, std::size_t repeats, RatioOfRepeat ratio, const BootstrapOptions& options) {
  const auto ratios = [&](std::span<const std::size_t> drawn) {
    std::vector<double> by_repeat(repeats);
    for (std::size_t repeat = 0; repeat < repeats; ++repeat) by_repeat[repeat] = ratio(drawn, repeat);
    return by_repeat;
  };
  const auto median_of = [](const std::vector<double>& values) {
    const bool all =
        std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
    return all ? median(values) : std::numeric_limits<double>::quiet_NaN();
  };
  Ratio out;
  out.prompts = prompts;
  out.repeats = ratios(all_of(prompts));
  out.value = median_of(out.repeats);
  out.ci = bootstrap_interval(prompts, [&](auto drawn) { return median_of(ratios(drawn)); }, options);
  return out;
}

}  // namespace

Ratio paired_ratio(const Times& base, const Times& test, const BootstrapOptions& options) {
  const std::size_t repeats = repeats_of("times of the base case", base);
  repeats_of("times of the case", test);
  require_pairs(base, test);
  return paired(
      base.size(), repeats,
      [&](std::span<const std::size_t> prompts, std::size_t repeat) {
        return sum_of_repeat(base, prompts, repeat) / sum_of_repeat(test, prompts, repeat);
      },
      options);
}

std::optional<Ratio> paired_speedup(const Decoded& base, const Decoded& test,
                                    const BootstrapOptions& options) {
  const std::size_t repeats = repeats_of("times of the base case", base.seconds, true);
  repeats_of("times of the case", test.seconds, true);
  repeats_of("tokens of the base case", base.tokens, true);
  repeats_of("tokens of the case", test.tokens, true);
  for (const Times* other : {&test.seconds, &base.tokens, &test.tokens}) require_pairs(base.seconds, *other);
  // Returns the ratio of the times multiplied by the ratio of the tokens. With equal numbers of tokens the
  // second factor is exactly 1, so the result has the bits of the ratio of the times.
  const auto per_token = [&](std::span<const std::size_t> prompts, std::size_t repeat) {
    const double base_seconds = sum_of_repeat(base.seconds, prompts, repeat),
                 test_seconds = sum_of_repeat(test.seconds, prompts, repeat),
                 base_tokens = sum_of_repeat(base.tokens, prompts, repeat),
                 test_tokens = sum_of_repeat(test.tokens, prompts, repeat);
    if (std::min({base_seconds, test_seconds, base_tokens, test_tokens}) <= 0)
      return std::numeric_limits<double>::quiet_NaN();
    return base_seconds / test_seconds * (test_tokens / base_tokens);
  };
  Ratio ratio = paired(base.seconds.size(), repeats, per_token, options);
  if (std::isnan(ratio.value)) return std::nullopt;
  return ratio;
}

std::optional<double> noise_floor(std::span<const Times> cases) {
  std::vector<double> gaps;
  for (const Times& times : cases) {
    const std::size_t repeats = repeats_of("times of a case", times, true);
    const auto prompts = all_of(times.size());
    for (std::size_t i = 0; i < repeats; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const double gap =
            std::abs(std::log(sum_of_repeat(times, prompts, i) / sum_of_repeat(times, prompts, j)));
        if (std::isfinite(gap)) gaps.push_back(gap);  // not finite when the case decoded nothing
      }
    }
  }
  if (gaps.empty()) return std::nullopt;
  return std::expm1(quantile(gaps, 0.95));
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster: return "faster";
    case Verdict::kSlower: return "slower";
    case Verdict::kSame: return "same";
    case Verdict::kUnclear: break;
  }
  return "unclear";
}

Verdict verdict(Interval speedup, double noise) {
  if (!(speedup.lo <= speedup.hi) || !(speedup.lo >= 0) || !(noise >= 0)) {
    throw Error({"verdict", fmt::format("interval [{}, {}], noise {}", speedup.lo, speedup.hi, noise),
                 "an interval of speedups >= 0 and a noise >= 0", ""});
  }
  const double upper = 1 + noise, lower = 1 / upper;
  if (speedup.lo > upper) return Verdict::kFaster;
  if (speedup.hi < lower) return Verdict::kSlower;
  if (speedup.lo >= lower && speedup.hi <= upper) return Verdict::kSame;
  return Verdict::kUnclear;
}

}  // namespace speclab::stats
