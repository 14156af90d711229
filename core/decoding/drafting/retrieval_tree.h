#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/datastore.h"

namespace speclab {

/// Options of RetrievalTree, described in fields().
struct RetrievalOptions {
  int ngram_max = 16;
  int ngram_min = 2;
  int length = 10;
  int nodes = 16;
  double min_share = 0;
  int hits = 64;
  void fields(OptionVisitor& visit);
};

/// Drafts a tree from a datastore (He et al. 2024, REST, Section 3). It looks up the longest suffix of the
/// text that the datastore contains, takes a sample of the continuations that follow it, and builds the tree
/// of their most frequent prefixes. Keeps its memory between calls; run() does not allocate.
class RetrievalTree {
 public:
  struct Node {
    Token token;
    int parent;    ///< index of a node; -1: the end of the text
    double share;  ///< share of the continuations that begin with the path to this node
  };

  /// Throws Error when the options contradict each other.
  explicit RetrievalTree(const RetrievalOptions& options);

  /// Builds the tree in nodes(), at most `limit` tokens deep. Nodes are in descending order of share. A
  /// parent comes before its children.
  void run(const Datastore& store, TokenSpan text, int limit);
  std::span<const Node> nodes() const { return nodes_; }
  int match_length() const { return matched_; }  ///< length of the suffix that was found; 0 when none was

 private:
  // A common prefix of continuations: entries [first, last) of the sample. They are neighbours, because the
  // datastore's suffix array is sorted.
  struct Prefix {
    int first, last;
    int parent, depth;
    Token token;
  };

  RetrievalOptions options_;
  std::vector<std::size_t> sample_;
  std::vector<Prefix> open_;  // prefixes that may become the next node: a heap by number of continuations
  std::vector<Node> nodes_;
  int matched_ = 0;
};

}  // namespace speclab
