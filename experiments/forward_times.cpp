#include "experiments/forward_times.h"

#include <algorithm>

#include "core/measure/clock.h"
#include "core/measure/stats.h"
#include "core/model/session.h"

namespace speclab {

std::vector<Token> timed_context(const Model& model, int length) {
  std::vector<Token> tokens(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>((i * 7919 + 13) % static_cast<std::size_t>(model.config().vocab));
  return tokens;
}

ForwardSamples sample_forwards(const Model& model, int context, const std::vector<int>& sizes, int repeats,
                               const std::function<bool()>& interrupted) {
  const int most = *std::max_element(sizes.begin(), sizes.end());
  const int room = model.config().context - most;
  if (room < 1) return {};
  context = std::clamp(context, 1, room);
  const auto session = model.open(context, std::max(most, 128));
  std::vector<Token> tokens = timed_context(model, context);
  session->prefill(tokens);
  std::vector<std::int32_t> parents(static_cast<std::size_t>(most)), rows(static_cast<std::size_t>(most));
  for (int i = 0; i < most; ++i)
    parents[static_cast<std::size_t>(i)] = i - 1, rows[static_cast<std::size_t>(i)] = i;
  std::vector<float> logits(static_cast<std::size_t>(most) *
                            static_cast<std::size_t>(model.config().head_rows()));
  tokens.resize(static_cast<std::size_t>(most), 1);
  ForwardSamples samples;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first round warms up
    for (const int n : sizes) {
      if (interrupted()) return {};
      const auto count = static_cast<std::size_t>(n);
      const std::int64_t begin = wall_now_ns();
      session->forward(TokenSpan(tokens).first(count), std::span(parents).first(count),
                       std::span(rows).first(count), logits.data());
      if (repeat >= 0) samples[n].push_back(static_cast<double>(wall_now_ns() - begin));
    }
  }
  return samples;
}

std::map<int, double> time_forwards(const Model& model, int context, const std::vector<int>& sizes,
                                    int repeats, const std::function<bool()>& interrupted) {
  std::map<int, double> medians;
  for (const auto& [n, times] : sample_forwards(model, context, sizes, repeats, interrupted))
    medians[n] = stats::median(times);
  return medians;
}

}  // namespace speclab
