#include "experiments/run/numerics_check.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "experiments/run/forced_rows.h"

namespace speclab {
namespace {

std::size_t best(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<Token> greedy_text(const Model& model, const PromptTokens& prompt, int tokens) {
  const int room = model.config().context - static_cast<int>(prompt.size());
  tokens = std::min(tokens, room);
  if (tokens < 1) return {};
  const auto session = model.open(static_cast<int>(prompt.size()) + tokens, 128);
  std::vector<float> row(static_cast<std::size_t>(model.config().head_rows()));
  session->prefill(prompt, row.data());
  std::vector<Token> text = {static_cast<Token>(best(row))};
  const std::int32_t parent = -1, wanted = 0;
  const int path = 0;
  while (static_cast<int>(text.size()) < tokens) {
    session->forward(TokenSpan(text).last(1), {&parent, 1}, {&wanted, 1}, row.data());
    session->commit({&path, 1});
    text.push_back(static_cast<Token>(best(row)));
  }
  return text;
}

/// log of the sum of exp(logits).
double log_sum_exp(std::span<const float> row) {
  const double top = row[best(row)];
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

NumericsAgreement compare_numerics(const Model& exact, const Model& other, const std::string& numerics,
                                   const std::vector<PromptTokens>& prompts, int tokens) {
  SPECLAB_CHECK(exact.config().head_rows() == other.config().head_rows(), "{} and {} logits",
                exact.config().head_rows(), other.config().head_rows());
  NumericsAgreement out{.numerics = numerics};
  const std::size_t width = static_cast<std::size_t>(exact.config().head_rows());
  double kl_sum = 0;
  int agreements = 0;
  for (const PromptTokens& prompt : prompts) {
    const std::vector<Token> text = greedy_text(exact, prompt, tokens);
    if (text.empty()) continue;
    ++out.prompts;
    std::vector<float> expected(text.size() * width);
    forced_rows(exact, prompt, text, [&](std::size_t i, std::span<const float> row) {
      std::copy(row.begin(), row.end(), expected.begin() + static_cast<std::ptrdiff_t>(i * width));
    });
    forced_rows(other, prompt, text, [&](std::size_t i, std::span<const float> row) {
      const auto right = std::span<const float>(expected).subspan(i * width, width);
      const double lse_p = log_sum_exp(right), lse_q = log_sum_exp(row);
      double kl = 0, difference = 0, largest = 0;
      for (std::size_t v = 0; v < width; ++v) {
        const double log_p = right[v] - lse_p;
        kl += std::exp(log_p) * (log_p - (row[v] - lse_q));
        difference = std::max(difference, std::abs(static_cast<double>(row[v]) - right[v]));
        largest = std::max(largest, std::abs(static_cast<double>(right[v])));
      }
      kl = std::max(kl, 0.0);  // equal rows may give a tiny negative value by rounding
      kl_sum += kl;
      out.kl_max = std::max(out.kl_max, kl);
      if (largest > 0) out.logit_difference = std::max(out.logit_difference, difference / largest);
      agreements += best(right) == best(row);
      ++out.positions;
    });
  }
  if (out.positions > 0) {
    out.kl_mean = kl_sum / out.positions;
    out.top1 = static_cast<double>(agreements) / out.positions;
  }
  return out;
}

}  // namespace speclab
