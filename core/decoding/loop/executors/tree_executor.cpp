// Verifies with one forward over all nodes of the draft. This is the usual way.
#include <numeric>

#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {
namespace {

class TreeExecutor final : public StepExecutor {
 public:
  explicit TreeExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence&) override { return {}; }

  void lay_out(const StepGroup& group) override {
    feeds_.clear();
    for (RunningSequence* sequence : group.running) {
      const TokenTree& tree = sequence->draft.tree;
      sequence->expect_rows();
      sequence->fed.assign(tree.tokens().begin(), tree.tokens().end());
      sequence->parents.assign(tree.parents().begin(), tree.parents().end());
      for (int node = 0; node < tree.size(); ++node) {
        if (tree.wants_row(node)) sequence->rows.push_back(node);
      }
      check_rows_in_flight(setting_, sequence->fed.size(), "Draft less.");
      nodes_.resize(static_cast<std::size_t>(tree.size()));
      std::iota(nodes_.begin(), nodes_.end(), 0);
      feeds_.push_back({sequence->session.get(), sequence->fed, sequence->parents, sequence->rows,
                        sequence->logits.data(),
                        sequence->states.taps(*setting_.reads, *sequence->session, nodes_),
                        setting_.reads->rows ? &sequence->maxima : nullptr});
    }
  }

  void forward(const StepGroup&) override { setting_.target->forward(feeds_); }

  void commit(RunningSequence& sequence) override {
    const std::vector<int>& path = sequence.acceptance.path;
    keep_.assign(1, 0);
    keep_.insert(keep_.end(), path.begin(), path.begin() + (sequence.emitted - 1));
    sequence.session->commit(keep_);
  }

 private:
  ExecutorSetting setting_;
  std::vector<Feed> feeds_;
  std::vector<std::int32_t> nodes_;  // 0, 1, ...: node i is row i of the feed
  std::vector<int> keep_;
};

}  // namespace

std::unique_ptr<StepExecutor> make_tree_executor(const ExecutorSetting& setting) {
  return std::make_unique<TreeExecutor>(setting);
}

}  // namespace speclab
