#include "core/model/toy/markov_rows.h"

#include <cmath>
#include <string>

#include "core/base/error.h"

namespace speclab::toy {

int count_contexts(int vocab, int order) {
  if (vocab < 2 || order < 1 || order > kHighestOrder) {
    throw Error({"Markov chain", fmt::format("{} symbols and order {}", vocab, order),
                 fmt::format("at least 2 symbols and an order from 1 to {}", kHighestOrder), ""});
  }
  int contexts = 1;
  for (int i = 0; i < order; ++i) {
    if (contexts > kMostContexts / vocab) {
      throw Error({"Markov chain", fmt::format("{} symbols and order {}", vocab, order),
                   fmt::format("at most {} contexts (symbols to the power of the order)", kMostContexts),
                   "Take fewer symbols or a lower order."});
    }
    contexts *= vocab;
  }
  return contexts;
}

void require_rows(std::string_view what, const MarkovRows& rows) {
  const int contexts = count_contexts(rows.vocab, rows.order);
  if (rows.probability.size() != static_cast<std::size_t>(contexts) * static_cast<std::size_t>(rows.vocab)) {
    throw Error({std::string(what), fmt::format("{} probabilities", rows.probability.size()),
                 fmt::format("{} rows of {}", contexts, rows.vocab), ""});
  }
  for (int context = 0; context < contexts; ++context) {
    double sum = 0;
    bool good = true;
    for (const double x : rows.row(context)) {
      good = good && x >= 0 && x <= 1 + 1e-6;
      sum += x;
    }
    if (good && std::abs(sum - 1) <= 1e-6) continue;
    throw Error({std::string(what), fmt::format("a row with the sum {}, of context {}", sum, context),
                 "probabilities with the sum 1", ""});
  }
}

std::vector<double> stationary_contexts(const MarkovRows& rows) {
  require_rows("rows of a Markov chain", rows);
  const auto contexts = static_cast<std::size_t>(rows.contexts());
  // Power iteration on (1 + transition) / 2, which has the same fixed point and cannot oscillate.
  constexpr int kMostIterations = 20'000;
  std::vector<double> law(contexts, 1.0 / static_cast<double>(contexts)), next(contexts);
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    for (std::size_t context = 0; context < contexts; ++context) next[context] = .5 * law[context];
    for (int context = 0; context < rows.contexts(); ++context) {
      const double half = .5 * law[static_cast<std::size_t>(context)];
      const std::span<const double> row = rows.row(context);
      for (int symbol = 0; symbol < rows.vocab; ++symbol)
        next[static_cast<std::size_t>(rows.next(context, symbol))] +=
            half * row[static_cast<std::size_t>(symbol)];
    }
    double change = 0;
    for (std::size_t context = 0; context < contexts; ++context)
      change += std::abs(next[context] - law[context]);
    law.swap(next);
    if (change < 1e-14) return law;
  }
  throw Error({"Markov chain", fmt::format("no stationary law after {} iterations", kMostIterations),
               "a chain that forgets its first context sooner", "Take a lower sharpness."});
}

}  // namespace speclab::toy
