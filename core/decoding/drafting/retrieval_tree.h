#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/datastore.h"

namespace speclab {

struct RetrievalOptions {
  int ngram_max = 16;
  int ngram_min = 2;
  int length = 10;
  int nodes = 16;
  double min_share = 0;
  int hits = 64;
  void fields(OptionVisitor& visit);
};

/// Continuations of a text's longest ending that a datastore knows, as a tree of the beginnings that most of
/// them have (He et al. 2024, REST, Section 3). Keeps its memory between calls; run() does not allocate.
class RetrievalTree {
 public:
  struct Node {
    Token token;
    int parent;    ///< index, -1: the end of the text
    double share;  ///< of the continuations, that begin like this
  };

  /// Throws Error when the options contradict each other.
  explicit RetrievalTree(const RetrievalOptions& options);

  /// Never more than `limit` tokens deep. Leaves what it found in nodes(), parents first, heaviest first.
  void run(const Datastore& store, TokenSpan text, int limit);
  std::span<const Node> nodes() const { return nodes_; }
  int match_length() const { return matched_; }  ///< of the ending; 0 without one

 private:
  // A beginning of continuations: the sample's entries [first, last), which follow one another in the suffix
  // array.
  struct Beginning {
    int first, last;
    int parent, depth;
    Token token;
  };

  RetrievalOptions options_;
  std::vector<std::size_t> sample_;
  std::vector<Beginning> open_;  // heap by weight
  std::vector<Node> nodes_;
  int matched_ = 0;
};

}  // namespace speclab
