// Verifies every node as the last token of a sequence of its own: its path from the root. The logits equal
// those of one forward over the tree, but more rows are fed. The comparison shows what the tree's attention
// mask saves.
#include <algorithm>

#include "core/decoding/loop/step_executor.h"

namespace speclab {
namespace {

constexpr int kRowsInFlight = 1024;
constexpr int kRowsOfPrefix = 16;  ///< expected mean length of a node's path

class PrefixExecutor final : public StepExecutor {
 public:
  explicit PrefixExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence&) override { return {}; }
  int rows_in_flight(int nodes) const override { return std::max(kRowsInFlight, kRowsOfPrefix * nodes); }

  void lay_out(const StepGroup& group) override {
    feeds_.clear();
    for (RunningSequence* sequence : group.running) {
      const TokenTree& tree = sequence->draft.tree;
      sequence->expect_rows();
      nodes_.clear();
      for (int node = 0; node < tree.size(); ++node) {
        append_path(*sequence, node);
        nodes_.push_back(static_cast<std::int32_t>(sequence->fed.size()) - 1);
        if (tree.wants_row(node)) sequence->rows.push_back(nodes_.back());
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
    // The rows to keep are those of the pending token and of all emitted tokens except the last one. The
    // prefix that ends at the deepest of these nodes holds all of them. Its last row follows from the lengths
    // of all prefixes up to this one, which are added up here.
    const int deepest =
        sequence.emitted > 1 ? sequence.acceptance.path[static_cast<std::size_t>(sequence.emitted) - 2] : 0;
    const TokenTree& tree = sequence.draft.tree;
    int last = -1;
    for (int node = 0; node <= deepest; ++node) last += tree.depth(node) + 1;
    keep_.clear();
    for (int row = last - (sequence.emitted - 1); row <= last; ++row) keep_.push_back(row);
    sequence.session->commit(keep_);
  }

 private:
  static void append_path(RunningSequence& sequence, int node) {
    const TokenTree& tree = sequence.draft.tree;
    tree.path_to(node, sequence.path);
    sequence.fed.push_back(tree.token(0));
    sequence.parents.push_back(-1);
    for (const int on_path : sequence.path) {
      sequence.parents.push_back(static_cast<std::int32_t>(sequence.fed.size()) - 1);
      sequence.fed.push_back(tree.token(on_path));
    }
  }

  ExecutorSetting setting_;
  std::vector<Feed> feeds_;
  std::vector<std::int32_t> nodes_;  // by node: the row of the feed that is this node
  std::vector<int> keep_;
};

}  // namespace

std::unique_ptr<StepExecutor> make_prefix_executor(const ExecutorSetting& setting) {
  if (setting.options->verify != VerifyWith::batch_of_prefixes) return nullptr;
  return std::make_unique<PrefixExecutor>(setting);
}

}  // namespace speclab
