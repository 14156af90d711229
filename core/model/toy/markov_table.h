#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/model/toy/markov_rows.h"

namespace speclab::toy {

/// Describes a random Markov chain. Equal descriptions give equal tables on every machine.
struct MarkovSpec {
  int vocab = 16;         ///< V, the number of symbols
  int order = 1;          ///< k, the number of symbols in a context
  std::int64_t seed = 1;  ///< of the table
  /// Logits are drawn from [-sharpness, sharpness]. With 0 all symbols are equally probable; the larger it
  /// is, the surer the chain is of its next symbol.
  double sharpness = 2;
  /// The number of last symbols that a row depends on; 0: all k. With fewer, each row is the mean of the
  /// rows that agree in these symbols, weighted by how often their contexts occur in endless text at
  /// temperature 1. This is the n-gram model of n = memory + 1 that such a text would give.
  int memory = 0;
  /// Share of another table that is mixed into every row at temperature 1: q = (1 - noise) p + noise r. So if
  /// a draft has the row q and its target the row p, sum min(p, q) = 1 - noise (1 - sum min(p, r)).
  double noise = 0;
  std::int64_t noise_seed = 0;  ///< seed of the other table; 0: seed + 1

  void fields(OptionVisitor& visit);
  bool operator==(const MarkovSpec&) const = default;
};

/// "markov vocab=16 order=1 seed=1 sharpness=2", with the other fields where they differ from their default.
std::string describe(const MarkovSpec& spec);

/// The logits of a chain, [contexts][vocab]. Each is a number that bf16 can hold, so a model with these
/// logits computes them exactly.
struct MarkovTable {
  int vocab = 0;
  int order = 1;
  std::vector<float> logits;
};

/// Logits drawn uniformly from [-sharpness, sharpness], [rows][vocab], not rounded to bf16.
std::vector<float> random_logits(int rows, int vocab, std::uint64_t seed, double sharpness);

/// Makes the table. The noise and the mean over contexts are exact up to the rounding of logits to bf16.
/// Throws Error if the chain has too many contexts (count_contexts) or `memory` exceeds the order.
MarkovTable make_markov_table(const MarkovSpec& spec);

/// The rows at temperature 1: the softmax of the logits, in double.
MarkovRows softmax_rows(const MarkovTable& table);

}  // namespace speclab::toy
