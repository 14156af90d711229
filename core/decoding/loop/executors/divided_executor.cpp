// Divides a step's tree over several devices (lookahead parallelism, Fu et al. 2024, Section 3.4). Each
// device's part is a forward of its own. The devices are only emulated: the parts run one after the other on
// the one real device, so that each part can be timed.
#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/decoding/loop/executors/divided_tree.h"
#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {
namespace {

class DividedExecutor final : public StepExecutor {
 public:
  explicit DividedExecutor(const ExecutorSetting& setting)
      : setting_(setting), states_(static_cast<std::size_t>(setting.options->batch)) {}

  std::string begin(RunningSequence& sequence) override {
    if (!setting_.reads->hidden.empty())
      return fmt::format("{} reads hidden states, but each device has only a part of them",
                         setting_.strategy_name);
    if (setting_.use.drafts)
      return fmt::format("{} drafts on the target's session, but each device has only a part of its cache",
                         setting_.strategy_name);
    of(sequence).refeed.clear();
    return {};
  }
  int rows_in_flight(int nodes) const override { return 2 * StepExecutor::rows_in_flight(nodes); }

  void lay_out(const StepGroup& group) override {
    for (RunningSequence* sequence : group.running) {
      State& state = of(*sequence);
      sequence->expect_rows();
      state.divided.assign(sequence->draft.tree, state.refeed, setting_.options->devices);
      for (DividedTree::Part& part : state.divided.parts()) {
        check_rows_in_flight(setting_, part.tokens.size(), "Draft less.");
        part.logits.resize(
            std::max(part.logits.size(), part.rows.size() * static_cast<std::size_t>(sequence->vocab())));
      }
    }
  }

  // There is one forward for each device. It runs the parts that this device has of all sequences. A row that
  // several devices compute has the same bits on all of them.
  void forward(const StepGroup& group) override {
    for (std::size_t device = 0; device < static_cast<std::size_t>(setting_.options->devices); ++device) {
      feeds_.clear();
      for (RunningSequence* sequence : group.running) {
        DividedTree::Part& part = of(*sequence).divided.parts()[device];
        feeds_.push_back({sequence->session.get(), part.tokens, part.parents, part.rows, part.logits.data()});
      }
      const std::int64_t begun = wall_now_ns();
      setting_.target->forward(feeds_);
      const std::int64_t ns = wall_now_ns() - begun;
      for (RunningSequence* sequence : group.running) {
        const DividedTree::Part& part = of(*sequence).divided.parts()[device];
        sequence->parts.push_back({static_cast<int>(part.tokens.size()), ns});
        take_rows(*sequence, part, of(*sequence).refeed.size());
      }
    }
  }

  // The cache keeps the tokens that every device was fed: those accepted by the previous step, and the
  // pending token.
  void commit(RunningSequence& sequence) override {
    std::vector<Token>& refeed = of(sequence).refeed;
    keep_.resize(refeed.size() + 1);
    std::iota(keep_.begin(), keep_.end(), 0);
    sequence.session->commit(keep_);
    refeed.clear();
    for (int i = 0; i + 1 < sequence.emitted; ++i)
      refeed.push_back(sequence.draft.tree.token(sequence.acceptance.path[static_cast<std::size_t>(i)]));
  }

 private:
  struct State {
    DividedTree divided;
    std::vector<Token> refeed;  // accepted tokens that not every device has in its cache
  };
  State& of(const RunningSequence& sequence) {
    return states_[static_cast<std::size_t>(sequence.sequence.slot)];
  }
  static void take_rows(RunningSequence& sequence, const DividedTree::Part& part, std::size_t refed) {
    const auto vocab = static_cast<std::size_t>(sequence.vocab());
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      const auto node = static_cast<std::size_t>(part.nodes[static_cast<std::size_t>(part.rows[i]) - refed]);
      std::copy_n(part.logits.data() + i * vocab, vocab,
                  sequence.logits.data() + static_cast<std::size_t>(sequence.row_of[node]) * vocab);
    }
  }

  ExecutorSetting setting_;
  std::vector<State> states_;  // by slot
  std::vector<Feed> feeds_;
  std::vector<int> keep_;
};

}  // namespace

std::unique_ptr<StepExecutor> make_divided_executor(const ExecutorSetting& setting) {
  if (setting.options->devices == 1) return nullptr;
  return std::make_unique<DividedExecutor>(setting);
}

}  // namespace speclab
