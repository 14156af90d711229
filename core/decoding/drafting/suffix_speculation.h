#pragma once

#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/suffix_automaton.h"

namespace speclab {

/// Which suffix of the text is continued: the one with the most expected accepted tokens, or the longest one
/// with enough continuations.
enum class SuffixContexts { best, enough };

/// Options of SuffixSpeculation, described in fields().
struct SuffixSpeculationOptions {
  int length = 8;
  double factor = 1;
  double offset = 0;
  double min_probability = .1;
  bool tree = false;
  SuffixContexts contexts = SuffixContexts::best;
  std::vector<double> trust;
  void fields(OptionVisitor& visit);
};

/// Speculates continuations of a context, the last tokens of a text, by their frequencies in an indexed text
/// (Oliaro et al. 2024, SuffixDecoding, Algorithm 1). It tries the longest matching context, then the longest
/// suffix of it that occurs more often, and so on, at most 12 contexts. For each context it speculates at
/// most floor(factor * match + offset) tokens, and never more than `length`. Here match is the length of the
/// context. The probability of a token is its frequency after the tokens before it, times the trust in a
/// match of that length (how often a copy after such a match is correct). The probability of a node is the
/// product over its path. A path follows the most frequent continuation; a tree grows at its most probable
/// leaf. The sum of the probabilities of all nodes is the expected number of accepted tokens. The context
/// with the highest sum wins; if sums are equal, the longest context.
///
/// With contexts "enough" this is the retrieval of Zhao et al. 2023 (alipay's Lookahead). They keep pieces of
/// the text, called branches, in a trie. The trie holds the strings and frequencies of this index if a branch
/// has depth() - 1 tokens after its first one (SuffixAutomaton::depth). Contexts of up to 12 tokens are
/// tried. The longest one with at least depth() - 1 nodes after it wins; if none has so many, the shortest
/// one that has a node after it. The most frequent nodes are taken, none further than depth() tokens from the
/// start of the context. There is one difference: their trie prefers continuations from the prompt to emitted
/// ones; here all occurrences count the same.
class SuffixSpeculation {
 public:
  struct Node {
    Token token;
    int parent;          ///< index of a node; -1: the end of the context
    double probability;  ///< of the whole path to this node
  };

  SuffixSpeculation();  ///< reserves all memory: run() does not allocate

  /// Speculates after `context`, at most `limit` tokens deep. With `at_end` the context is the end of the
  /// indexed text, so one of its occurrences has no continuation. The result is in nodes(). Parents come
  /// before their children; in a tree, more probable nodes come before less probable ones.
  void run(const SuffixAutomaton& text, SuffixAutomaton::Match context, bool at_end, int limit,
           const SuffixSpeculationOptions& options);
  void clear();

  const std::vector<Node>& nodes() const { return nodes_; }
  double score() const { return score_; }        ///< sum of the probabilities of all nodes
  int match_length() const { return matched_; }  ///< length of the winning context; 0 without one

  /// The entry of `trust` for a match of `matched` >= 1 tokens: how often a copy after such a match is
  /// correct. 1 if `trust` is empty.
  static double trust(const std::vector<double>& trust, int matched);

 private:
  struct Leaf {
    Node node;
    SuffixAutomaton::Match context;
    int depth;
  };
  void path(const SuffixAutomaton& text, SuffixAutomaton::Match context, double occurrences, int matched,
            int budget);
  void tree(const SuffixAutomaton& text, SuffixAutomaton::Match context, double occurrences, int matched,
            int budget, int limit);
  void retrieve(const SuffixAutomaton& text, SuffixAutomaton::Match context, bool at_end, int limit);
  void take(int matched);

  const SuffixSpeculationOptions* options_ = nullptr;  // during run()
  std::vector<Node> nodes_, tried_;
  double score_ = 0;
  int matched_ = 0;
  std::vector<Leaf> leaves_;  // heap by probability
  std::vector<SuffixAutomaton::Child> children_;
};

}  // namespace speclab
