// Token recycling: the target's rows rank more tokens than the one that is emitted. The strategy keeps a
// matrix with k candidates for each token of the vocabulary: the k best tokens of the last target row that it
// read after that token. A tree of fixed shape is drafted from this matrix level by level: child r of a node
// is the r-th candidate of the node's token. The draft has no probabilities: q is one-hot.
//
// Paper:       Luo et al. 2024, "Turning Trash into Treasure: Accelerating Inference of Large Language Models
//              with Token Recycling"; the default tree is theirs, 80 tokens in 6 levels, k = 8.
// Draft cost:  reads one row for each different token of the step. The output head stores the maximum of
//              every block of 64 entries. The strategy reads these maxima first, then only the few blocks
//              that can hold a candidate. Without maxima (a GPU, a soft cap or a mask on the logits) it
//              passes over the whole row, which takes 10 to 13 us for 49152 entries; the rows of the
//              published tree take 16 MB. `learn: accepted` reads only the rows of the pending token and of
//              accepted tokens.
// Loses when:  a target forward over the published tree (81 rows) takes much longer than one over one row.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostTreeNodes = 512;

enum class Learn { all, accepted };

struct TokenRecyclingOptions {
  int k = 8;
  // Children of each node in breadth-first order, the pending token first (Luo et al. 2024, figure of the
  // tree).
  std::vector<int> tree = {8, 8, 4, 3, 2, 1, 1, 1, 1, 8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1,
                           0, 1, 1, 0, 0, 5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0,
                           0, 1, 1, 0, 0, 3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 0, 0, 1};
  Learn learn = Learn::all;
  bool keep = false;
  CutBudgetOptions budget;
  bool carries_memory() const { return keep; }
  void fields(OptionVisitor& visit) {
    visit(
        "k", k, Range<int>{1, 64},
        "number of candidates that are kept for each token. They are the best next tokens in the last target "
        "row that was read after this token");
    visit("tree", tree, Range<int>{0, 64},
          "shape: children of each node in breadth-first order, the pending token first; nodes that are not "
          "listed are leaves. Child r is the r-th best candidate, so a node has at most k children");
    visit("learn", learn, {{Learn::all, "all"}, {Learn::accepted, "accepted"}},
          "which rows to learn from: those of all nodes, or only those of the pending token and of accepted "
          "nodes");
    visit("keep", keep,
          "candidates stay for the next prompt; prompts are then decoded in the order of their file");
    budget.fields(visit);
  }
};

/// A place in the tree of fixed shape. Parents come first; place 0 is the pending token.
struct Place {
  int parent;
  int rank;  // rank among its siblings: which candidate of the parent's token goes here
};

std::vector<Place> places_of(const TokenRecyclingOptions& options) {
  std::vector<Place> places{{-1, 0}};
  for (std::size_t node = 0; node < places.size() && node < options.tree.size(); ++node) {
    for (int rank = 0; rank < options.tree[node]; ++rank) places.push_back({static_cast<int>(node), rank});
    if (places.size() > kMostTreeNodes) {
      throw Error({"token_recycling: tree", "more than " + std::to_string(kMostTreeNodes) + " nodes",
                   "at most " + std::to_string(kMostTreeNodes), "Use a smaller tree."});
    }
  }
  if (options.tree.size() > places.size()) {
    throw Error(
        {"token_recycling: tree", "a list of " + std::to_string(options.tree.size()) + " entries",
         "at most " + std::to_string(places.size()) + ", one for each node of the tree that it describes",
         ""});
  }
  return places;
}

class TokenRecycling final : public Strategy {
 public:
  TokenRecycling(const TokenRecyclingOptions& options, const Resources& resources)
      : options_(options),
        places_(places_of(options)),
        tokens_(static_cast<std::size_t>(resources.target->config().vocab)),
        slots_(static_cast<std::size_t>(resources.batch)) {
    for (std::vector<Token>& matrix : slots_) matrix.assign(tokens_ * width(), kUnknown);
    learnt_.resize(tokens_);
    nodes_.resize(places_.size());
    best_.reserve(width());
  }

  Reads reads() const override { return {.rows = true}; }

  int max_nodes() const override { return places_.size() > 128 ? static_cast<int>(places_.size()) : 0; }

  void begin(const Sequence& sequence) override {
    std::vector<Token>& matrix = slots_[static_cast<std::size_t>(sequence.slot)];
    if (!options_.keep) std::fill(matrix.begin(), matrix.end(), kUnknown);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::vector<Token>& matrix = slots_[static_cast<std::size_t>(sequences[i]->slot)];
      Draft& draft = *drafts[i];
      nodes_[0] = 0;
      for (std::size_t place = 1; place < places_.size(); ++place) {
        const auto [above, rank] = places_[place];
        const int parent = nodes_[static_cast<std::size_t>(above)];
        nodes_[place] = -1;
        if (parent < 0 || rank >= options_.k || draft.tree.depth(parent) >= sequences[i]->depth_limit)
          continue;
        const Token token = matrix[row_of(draft.tree.token(parent)) + static_cast<std::size_t>(rank)];
        if (token != kUnknown) nodes_[place] = draft.add(token, parent);
      }
      if (draft.tree.drafted() > 0) draft.source = "recycled";
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<Token>& matrix = slots_[static_cast<std::size_t>(sequences[i]->slot)];
      const Outcome& outcome = outcomes[i];
      const TokenTree& tree = outcome.draft->tree;
      const std::vector<int>& path = outcome.acceptance->path;
      // If several nodes hold the same token, only one row is read. A row of the emitted text is preferred,
      // because its context is real; among several such rows, the last one.
      ++step_;
      for (std::size_t on_path = path.size(); on_path-- > 0;) learn(matrix, outcome, path[on_path]);
      learn(matrix, outcome, 0);
      if (options_.learn == Learn::accepted) continue;
      for (int node = tree.size() - 1; node > 0; --node) learn(matrix, outcome, node);
    }
  }

 private:
  static constexpr Token kUnknown = -1;

  std::size_t width() const { return static_cast<std::size_t>(options_.k); }
  std::size_t row_of(Token token) const { return static_cast<std::size_t>(token) * width(); }

  /// Takes the token's candidates from the node's row, unless this step has already set them.
  void learn(std::vector<Token>& matrix, const Outcome& outcome, int node) {
    const Token token = outcome.draft->tree.token(node);
    std::uint64_t& learnt = learnt_[static_cast<std::size_t>(token)];
    if (learnt == step_) return;
    learnt = step_;
    outcome.rows.top(node, options_.k, best_);
    std::copy(best_.begin(), best_.end(), matrix.begin() + static_cast<std::ptrdiff_t>(row_of(token)));
  }

  TokenRecyclingOptions options_;
  std::vector<Place> places_;
  std::size_t tokens_;                     // in the vocabulary
  std::vector<std::vector<Token>> slots_;  // [batch][vocab, k]
  std::vector<int> nodes_;                 // [places], nodes of the current draft; -1: none
  std::vector<Token> best_;
  std::uint64_t step_ = 0;             // counts the steps of all sequences
  std::vector<std::uint64_t> learnt_;  // [vocab], the last step that set the token's candidates
};

constexpr StrategyBenchmark kTokenRecyclingBenchmarks[] = {
    {"token_recycling", "{}", BenchmarkKind::decoded},
    {"token_recycling,learn:accepted", R"({"learn": "accepted"})", BenchmarkKind::decoded}};

const RegisterStrategy<TokenRecyclingOptions, TokenRecycling> registered{{
    .name = "token_recycling",
    .summary = "the target's own best candidates after each token, from rows of earlier steps, as a tree of "
               "fixed shape",
    .paper = "Luo et al. 2024, Token Recycling",
    .draft_source = "the target's rows of earlier steps",
    .stop_rule = "shape of the tree",
    .verification = "tree",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .follows_steps = true,
    .law = StrategyLaw::candidates,
    .benchmarks = kTokenRecyclingBenchmarks,
}};

}  // namespace
}  // namespace speclab
