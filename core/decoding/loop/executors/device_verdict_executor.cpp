// The host drafts and a device verifies. A step is one round trip: the draft goes up, the verdict comes back,
// and the rows of logits stay on the device. The time of the verdict is part of phase "target". If the
// strategy reads hidden states, the hidden states of all nodes stay on the device too. After the verdict the
// host knows which states it needs, and fetches these in a second round trip.
#include "core/base/error.h"
#include "core/decoding/loop/executors/device_plan_shape.h"
#include "core/decoding/loop/executors/device_verifier.h"
#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {
namespace {

class DeviceVerdictExecutor final : public StepExecutor {
 public:
  explicit DeviceVerdictExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence& sequence) override {
    std::string reason;
    const std::optional<PlanShape> shape = target_plan_shape(setting_, sequence, reason);
    if (!shape) return reason;
    const Strategy& strategy = *setting_.strategy;
    if (setting_.reads->rows) return fmt::format("{} learns from the target's rows", setting_.strategy_name);
    if (!setting_.use.exits.empty())
      return fmt::format("{} leaves rows in flight for the verifying forward", setting_.strategy_name);
    if (strategy.max_nodes() > kMostPlanNodes)
      return fmt::format("{} drafts up to {} nodes", setting_.strategy_name, strategy.max_nodes());
    const std::vector<int>& hidden = setting_.reads->hidden;
    if (!verifier_ || !verifier_->is_of(*shape, *sequence.session, hidden))
      verifier_ = DeviceVerifier::make(*shape, *sequence.session, setting_.scratch, hidden);
    if (!verifier_)
      return fmt::format("backend {} runs no steps by itself", setting_.target->backend().name());
    return {};
  }

  void lay_out(const StepGroup& group) override {
    RunningSequence& sequence = *group.running.front();
    const TokenTree& tree = sequence.draft.tree;
    check_rows_in_flight(setting_, static_cast<std::size_t>(tree.size()), "Draft less.");
    sequence.expect_rows();
    sequence.fed.assign(tree.tokens().begin(), tree.tokens().end());
  }

  // The device moves the whole accepted path behind the pending token in the KV cache, even if only a part of
  // the path is emitted.
  void forward(const StepGroup& group) override {
    RunningSequence& sequence = *group.running.front();
    if (sequence.rule->require != nullptr) sequence.rule->require(sequence.draft);
    const std::vector<Token>& text = sequence.sequence.tokens;
    sequence.decided_from = sequence.sequence.position();
    const RoundQueue queue = sequence.request.options.device_graph == DeviceGraph::off ? RoundQueue::kLaunches
                                                                                       : RoundQueue::kGraph;
    read_verdict(verifier_->verify(sequence.draft, sequence.decided_from, text[text.size() - 2],
                                   sequence.sequence.coins, queue),
                 sequence.acceptance);
    const int nodes = sequence.draft.tree.size();
    sequence.session->follow(sequence.draft.tree.parents(), false, nodes);
    sequence.states.take(*setting_.reads, *sequence.session, verifier_->states(), nodes);
  }

  void judge(const StepGroup&) override {}  // the verdict came with the forward

  void commit(RunningSequence& sequence) override {
    sequence.session->follow_commit(sequence.emitted);
    ++sequence.out.verified_steps;
  }

  bool fetch_rows(RunningSequence& sequence) override {
    const LoopOptions& options = *setting_.options;
    if (!options.hash_rows && !options.details && !options.on_judged) return true;
    verifier_->download(std::span(sequence.logits)
                            .first(static_cast<std::size_t>(sequence.draft.tree.size()) *
                                   static_cast<std::size_t>(sequence.vocab())));
    return true;
  }

 private:
  ExecutorSetting setting_;
  std::unique_ptr<DeviceVerifier> verifier_;  // kept for later generations of the same shape
};

}  // namespace

std::unique_ptr<StepExecutor> make_device_verdict_executor(const ExecutorSetting& setting) {
  return std::make_unique<DeviceVerdictExecutor>(setting);
}

}  // namespace speclab
