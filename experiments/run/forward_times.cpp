#include "experiments/run/forward_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/model/net/session.h"

namespace speclab {

std::vector<Token> timed_context(const Model& model, int length) {
  // The draft of an inflated target may have fewer embedding rows than its vocabulary has ids. The last row
  // then belongs to the last entry of head_ids. The text contains no higher ids, and no ids that the
  // inflation adds (ModelConfig::tokens).
  const ModelConfig& config = model.config();
  const int known = config.head_ids.empty() ? config.tokens() : config.head_ids.back() + 1;
  std::vector<Token> tokens(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>((i * 7919 + 13) % static_cast<std::size_t>(known));
  return tokens;
}

ForwardTimer::ForwardTimer(const Model& model, int context, int most_rows)
    : tokens_(static_cast<std::size_t>(most_rows), 1), parents_(tokens_.size()), rows_(tokens_.size()) {
  const int room = model.config().context - most_rows;
  if (room < 1) {
    throw Error({.what = "timing forwards",
                 .got = fmt::format("{} rows for a context of {}", most_rows, model.config().context),
                 .expected = "fewer rows than the context has positions",
                 .advice = "Lower calibration.rows."});
  }
  const std::vector<Token> context_tokens = timed_context(model, std::clamp(context, 1, room));
  session_ = model.open(static_cast<int>(context_tokens.size()), std::max(most_rows, 128));
  session_->prefill(context_tokens);
  std::iota(parents_.begin(), parents_.end(), -1);
  std::iota(rows_.begin(), rows_.end(), 0);
  logits_.resize(tokens_.size() * static_cast<std::size_t>(model.config().head_rows()));
  timer_ = model.backend().make_timer();
}

ForwardTimer::~ForwardTimer() = default;

ForwardTime ForwardTimer::time(int n) {
  const auto count = static_cast<std::size_t>(n);
  Feed feed{session_.get(), TokenSpan(tokens_).first(count), std::span(parents_).first(count),
            std::span(rows_).first(count), logits_.data()};
  feed.timer = timer_.get();
  const std::int64_t begin = wall_now_ns();
  session_->model().forward({&feed, 1});
  ForwardTime time{.host_ns = static_cast<double>(wall_now_ns() - begin), .device_ns = std::nullopt};
  if (timer_) time.device_ns = 1e9 * timer_->seconds();
  return time;
}

std::span<const float> ForwardTimer::logits() const {
  return std::span(logits_).first(static_cast<std::size_t>(session_->model().config().head_rows()));
}

std::map<std::string, int> ForwardTimer::kernels() const {
  std::map<std::string, int> counts;
  if (!timer_) return counts;
  for (const std::string_view kernel : timer_->kernels()) ++counts[std::string(kernel)];
  return counts;
}

ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats,
                               const std::function<void(const ForwardSamples&)>& after_repeat, int untimed) {
  ForwardTimer timer(model, context, *std::max_element(sizes.begin(), sizes.end()));
  ForwardSamples samples;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first round warms up
    for (const int n : sizes) {
      for (int i = 0; repeat >= 0 && n <= kMostRowsAgain && i < untimed; ++i) timer.time(n);
      const ForwardTime time = timer.time(n);
      if (repeat < 0) continue;
      samples.host[n].push_back(time.host_ns);
      if (!time.device_ns) continue;
      samples.device[n].push_back(*time.device_ns);
      samples.kernels[n] = timer.kernels();
    }
    if (repeat >= 0 && after_repeat) after_repeat(samples);
  }
  return samples;
}

}  // namespace speclab
