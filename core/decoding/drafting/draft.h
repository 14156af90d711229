#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/measure/recorder.h"
#include "core/decoding/rows/distribution.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// The draft of one sequence for one step. The q of a node is the distribution that its token was
/// really drawn from, given the earlier draws at the same parent. A node without q counts as
/// one-hot: its token was not drawn (a copied token, a top-k child).
struct Draft {
  static constexpr int kOneHot = -1;

  TokenTree tree;  ///< the loop puts the pending token at node 0
  /// [tree.size()], index into q, or kOneHot; entry 0 unused. A number below kOneHot stands for a row of q
  /// without some tokens, see take_out().
  std::vector<int> q_of;
  std::vector<Distribution> q;  ///< reused between steps; the first `q_used` are valid
  int q_used = 0;
  std::string_view source;  ///< static string: "draft", "lookup", ...; empty when nothing was drafted
  /// Marks the nodes of one source in a tree that several sources drafted. The nodes are those from `first`
  /// up to the next contribution. `source` is a static string. The list is in ascending order of `first`. It
  /// is empty when all nodes are from Draft::source.
  struct Contribution {
    int first;
    std::string_view source;
  };
  std::vector<Contribution> contributions;
  /// Used if draft models review each other's chains. The draft model `reviewer` tested `tested` places of
  /// the chains from `source` and kept `kept` of them. If `source` drafted fewer tokens than it was asked
  /// for, the first missing one counts as tested and not kept. The places after the first one that was not
  /// kept do not count. The names are static strings. Each pair of names occurs at most once.
  struct Review {
    std::string_view reviewer, source;
    int tested, kept;
  };
  std::vector<Review> reviews;
  std::int64_t pool_size = -1;     ///< n-grams in the strategy's pool, for the record; -1: no pool
  bool ended_by_schedule = false;  ///< a schedule stopped the draft before its maximum
  /// The largest probability of the draft model's distribution after the pending token, for the record; -1:
  /// not computed.
  float root_confidence = -1;
  /// Which of several trees this draft is, from 0, for the record; -1: the strategy has no such choice.
  int tree_number = -1;
  /// The probability that each node is right if its parent is right, as the draft estimates it. For a token
  /// of a model this is q(x). For a copied token it is the share of the earlier places with the same context
  /// at which this token came next. -1: unknown. [tree.size()]
  std::vector<float> confidence;
  /// Entropy in nats of the row that each node's token was drawn from, for the record; -1: not computed.
  /// [tree.size()]. A node's confidence and its entropy come from the same distribution.
  std::vector<float> entropy;
  /// The largest probabilities of the row that each node's token was drawn from, descending, for the record;
  /// 0 for nodes without them. [nodes up to the last one that has them, top_width]; empty: not computed.
  std::vector<float> top;
  int top_width = 0;  ///< how many probabilities each node has
  /// The acceptance that a trained controller predicted for each node, for the record; -1: no prediction.
  /// [nodes up to the last one with a prediction]
  std::vector<float> predicted;
  /// How good the evidence for the whole draft is, in a measure of the strategy, such as the length of the
  /// match that is continued; 0: unknown. A budget (core/decoding/budget) learns the acceptance for each
  /// value.
  int evidence = 0;
  /// Number of drafted nodes, from node 1 on, that a budget must keep. For a draft model these are its
  /// tokens, because they may have been drawn at random. In lookahead decoding with "accept_window" these are
  /// the tokens that come from the window.
  int must_keep = 0;
  /// True if the choice of the copied tokens does not depend on the tokens that were drawn for this draft,
  /// and if `copied_too` is complete. The bound of a node with drawn and copied children needs both
  /// (core/theory/step_bounds.h).
  bool copies_ignore_draws = false;
  /// Drawn nodes whose tokens were also copied. Such a copy has no node of its own, see TokenTree::child().
  std::vector<int> copied_too;
  /// What the strategy drafted for the next step while this draft was verified, for the record. Strategies
  /// that draft ahead set it in observe().
  std::optional<AheadWork> ahead;

  void reset(Token pending);
  /// Exchanges the contents of two drafts. Copies and allocates nothing.
  void swap(Draft& other);
  /// Appends a node and returns its index. `q_index` is the index of a Distribution from new_q(), which the
  /// caller has filled, or kOneHot.
  int add(Token token, int parent, int q_index = kOneHot, float confidence = -1.0f, float entropy = -1.0f);
  /// Sets the entries of a node in `top`. All nodes of a draft that have entries must have equally many.
  void set_top(int node, std::span<const float> probabilities);
  void set_predicted(int node, float acceptance);  ///< sets the entry of a node in `predicted`
  /// Adds one test to the entry of `reviews` for this pair of names.
  void add_review(std::string_view reviewer, std::string_view source, bool kept);
  /// Appends a probe or a relay, see NodeKind. All candidates must have been added before.
  int add_probe(Token token, int parent, NodeKind kind = NodeKind::probe);
  /// Removes the nodes for which `keep` is 0. [tree.size()]; entry 0 is not read. The parent of a kept node
  /// must be kept, and the draft must not have probes.
  void keep(std::span<const char> keep);
  Distribution& new_q(int* index);  ///< next free entry of `q`; the reference is valid until the next call

  /// For draws without replacement. Takes a token out of q[row], so that the next siblings are drawn from the
  /// rest of this row. A node that is added with this row gets as its q what the row is at that moment. So
  /// the children of a node share one stored row. q[row] must not be one-hot. Call put_back() after the last
  /// child, and before tokens are taken out of another row. Returns false if no mass is left; then draw no
  /// more from this row.
  bool take_out(int row, Token token);
  void put_back();

  /// The distribution that the node's token was drawn from; null: one-hot. The pointer is valid until the
  /// draft changes. If other tokens were taken out of the row before add(), the first call copies the row.
  const Distribution* q_at(int node) const;
  /// Number of rows that q_at() has copied in this step.
  std::size_t rows_copied() const { return copies_used_; }

 private:
  // A row without `count` tokens of taken_, from `first` on.
  struct Rest {
    int row, first, count;
    double sum;
    mutable int copy = -1;  // in copies_; -1: not made yet
  };
  std::vector<Rest> rests_;                  // q_of has kOneHot - 1 - index
  std::vector<Token> taken_;                 // tokens that were taken out of rows
  int thin_row_ = kOneHot, thin_first_ = 0;  // the row that lacks tokens; the first of these in taken_
  double thin_sum_ = 0;                      // sum of that row with all tokens
  std::vector<float> thin_weights_;          // weights of its tokens that were taken out
  mutable std::deque<Distribution> copies_;  // reused between steps; rows keep their addresses
  mutable std::size_t copies_used_ = 0;
  std::vector<int> moved_;  // scratch of keep(): the new number of each node
};

}  // namespace speclab
