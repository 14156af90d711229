#pragma once

#include <span>
#include <string_view>
#include <vector>

/// Toy models: Markov chains whose tables are known, so that every expectation can be computed exactly.
namespace speclab::toy {

/// Largest number of contexts of a chain. A toy as a checkpoint has two matrices of contexts x contexts.
inline constexpr int kMostContexts = 4096;
inline constexpr int kHighestOrder = 3;

/// The rows of a Markov chain of order k over V symbols. The next symbol depends on the last k symbols, the
/// context. A context is a number: its symbols are the digits in base V, the oldest symbol first. So the last
/// symbol of context c is c mod V. With order 1 a context is a symbol.
struct MarkovRows {
  int vocab = 0;                    ///< V
  int order = 1;                    ///< k
  std::vector<double> probability;  ///< [V^k contexts][V]: P(next symbol | context)

  int contexts() const { return vocab > 0 ? static_cast<int>(probability.size()) / vocab : 0; }
  std::span<const double> row(int context) const {
    return std::span(probability)
        .subspan(static_cast<std::size_t>(context) * static_cast<std::size_t>(vocab),
                 static_cast<std::size_t>(vocab));
  }
  /// The context after this symbol.
  int next(int context, int symbol) const { return (context * vocab + symbol) % contexts(); }
};

/// V^k. Throws Error unless V is at least 2, k is from 1 to kHighestOrder, and V^k is at most kMostContexts.
int count_contexts(int vocab, int order);

/// Throws Error that begins with `what` unless the table has a row for every context and each row holds
/// probabilities with the sum 1 (within 1e-6).
void require_rows(std::string_view what, const MarkovRows& rows);

/// The long-run share of each context, [contexts], in a text that begins with a context chosen uniformly.
/// Throws Error if it is not found after many iterations, because the chain forgets its first context too
/// slowly.
std::vector<double> stationary_contexts(const MarkovRows& rows);

}  // namespace speclab::toy
