// Verifies a tree as a batch of sequences that share no rows: each sequence is the path from the root to one
// node. There is one sequence for each leaf, as in verification without tree attention (Miao et al. 2024,
// Section 4.2), or one for each node. The logits have the same bits as in one forward over the tree, but a
// tree with branches feeds more rows. The comparison shows what the tree's attention mask saves. The output
// head runs once for each node that needs logits, on the node's row in the first sequence that contains it.
#include <algorithm>

#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {
namespace {

constexpr int kRowsInFlight = 1024;
constexpr int kRowsOfPrefix = 16;  ///< expected mean length of a node's path

class SequencesExecutor final : public StepExecutor {
 public:
  explicit SequencesExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence&) override { return {}; }
  int rows_in_flight(int nodes) const override { return std::max(kRowsInFlight, kRowsOfPrefix * nodes); }

  void lay_out(const StepGroup& group) override {
    feeds_.clear();
    for (RunningSequence* sequence : group.running) {
      const TokenTree& tree = sequence->draft.tree;
      sequence->expect_rows();
      row_of_node(tree);
      for (int end = 0; end < tree.size(); ++end) {
        if (is_end_[static_cast<std::size_t>(end)]) append_path(*sequence, end);
      }
      check_rows_in_flight(setting_, sequence->fed.size(), "Draft less, or verify in one pass.");
      feeds_.push_back({sequence->session.get(), sequence->fed, sequence->parents, sequence->rows,
                        sequence->logits.data(),
                        sequence->states.taps(*setting_.reads, *sequence->session, nodes_),
                        setting_.reads->rows ? &sequence->maxima : nullptr});
    }
  }

  void forward(const StepGroup&) override { setting_.target->forward(feeds_); }

  void commit(RunningSequence& sequence) override {
    // All rows to keep are neighbours in one sequence: the first one that contains the deepest of the nodes
    // to keep.
    const int deepest =
        sequence.emitted > 1 ? sequence.acceptance.path[static_cast<std::size_t>(sequence.emitted) - 2] : 0;
    row_of_node(sequence.draft.tree);
    const int last = nodes_[static_cast<std::size_t>(deepest)];
    keep_.clear();
    for (int row = last - (sequence.emitted - 1); row <= last; ++row) keep_.push_back(row);
    sequence.session->commit(keep_);
  }

 private:
  // Sets is_end_ and nodes_ for a tree.
  void row_of_node(const TokenTree& tree) {
    const auto size = static_cast<std::size_t>(tree.size());
    is_end_.assign(size, 1);
    if (setting_.options->verify == VerifyWith::batch_of_leaves) {
      for (int node = 1; node < tree.size(); ++node) is_end_[static_cast<std::size_t>(tree.parent(node))] = 0;
    }
    nodes_.assign(size, -1);
    int rows = 0;
    for (int end = 0; end < tree.size(); ++end) {
      if (!is_end_[static_cast<std::size_t>(end)]) continue;
      rows += tree.depth(end) + 1;
      int row = rows - 1;
      for (int node = end; node >= 0 && nodes_[static_cast<std::size_t>(node)] < 0; node = tree.parent(node))
        nodes_[static_cast<std::size_t>(node)] = row--;
    }
  }

  // Feeds the path to a node. Asks for a node's logits if they are needed and no earlier path had the node.
  void append_path(RunningSequence& sequence, int end) {
    const TokenTree& tree = sequence.draft.tree;
    tree.path_to(end, sequence.path);
    append(sequence, 0, -1);
    for (const int node : sequence.path)
      append(sequence, node, static_cast<std::int32_t>(sequence.fed.size()) - 1);
  }
  void append(RunningSequence& sequence, int node, std::int32_t parent) {
    const auto row = static_cast<std::int32_t>(sequence.fed.size());
    sequence.fed.push_back(sequence.draft.tree.token(node));
    sequence.parents.push_back(parent);
    if (nodes_[static_cast<std::size_t>(node)] != row || !sequence.draft.tree.wants_row(node)) return;
    sequence.row_of[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(sequence.rows.size());
    sequence.rows.push_back(row);
  }

  ExecutorSetting setting_;
  std::vector<Feed> feeds_;
  std::vector<char> is_end_;         // by node: whether a sequence ends at it
  std::vector<std::int32_t> nodes_;  // by node: its row in the first sequence that contains it
  std::vector<int> keep_;
};

}  // namespace

std::unique_ptr<StepExecutor> make_sequences_executor(const ExecutorSetting& setting) {
  if (setting.options->verify == VerifyWith::one_pass) return nullptr;
  return std::make_unique<SequencesExecutor>(setting);
}

}  // namespace speclab
