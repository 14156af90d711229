#pragma once

#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/suffix_automaton.h"

namespace speclab {

/// Which ending of the text is looked up: the one that promises most accepted tokens, or the longest one with
/// enough continuations.
enum class SuffixContexts { best, enough };

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

/// Continuations of a context by their frequencies in an indexed text (Oliaro et al. 2024, SuffixDecoding,
/// Algorithm 1). For the longest matching context and each shorter one that occurs more often: at most
/// floor(factor * match + offset) tokens, each with the probability that its frequency gives it, times the
/// trust in a match of that length; a path follows the most frequent continuation, a tree grows by its most
/// probable leaf. The context whose speculation has the highest sum of probabilities, i.e. expected number of
/// accepted tokens, wins; among equals the longest.
///
/// With contexts "enough" it is the retrieval of Zhao et al. 2023 (alipay's Lookahead) from a trie of
/// branches: all strings of up to depth() tokens with their frequencies are what that trie holds when
/// branches have depth() - 1 tokens behind their first one. Of the contexts of up to 12 tokens the longest
/// with depth() - 1 nodes behind it or more wins, else the shortest; the most frequent nodes are taken, none
/// further than depth() tokens from where the context begins. There, what the prompt says goes before what
/// was emitted; here all occurrences are equal.
class SuffixSpeculation {
 public:
  struct Node {
    Token token;
    int parent;          ///< index, -1: the end of the context
    double probability;  ///< of the whole path down to here
  };

  SuffixSpeculation();  ///< with room for whatever it may find: run() does not allocate

  /// Speculates after `context`. With `at_end` the context is the end of the indexed text, so that one of its
  /// occurrences has no continuation. Never more than `limit` tokens deep. Leaves what it found in nodes(),
  /// parents first, most probable first in a tree.
  void run(const SuffixAutomaton& text, SuffixAutomaton::Match context, bool at_end, int limit,
           const SuffixSpeculationOptions& options);
  void clear();

  const std::vector<Node>& nodes() const { return nodes_; }
  double score() const { return score_; }        ///< sum of the probabilities of all nodes
  int match_length() const { return matched_; }  ///< of the winning context; 0 without one

  /// How often a copy is right after `matched` >= 1 tokens, by SuffixSpeculationOptions::trust.
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
