#include "tests/planted/planted_executor.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "core/measure/clock.h"
#include "tests/planted/plant.h"

namespace speclab::planted {
namespace {

void spin(std::int64_t ns) {
  const std::int64_t end = wall_now_ns() + ns;
  while (wall_now_ns() < end) {
  }
}

/// Replaces drafted tokens of a sequence by other tokens of the vocabulary. Returns how many.
int replace_tokens(RunningSequence& sequence, const Plant& plant, int vocab) {
  Draft& draft = sequence.draft;
  const TokenTree& tree = draft.tree;
  const PhiloxKey& key = sequence.sequence.coins.key();
  const Coins coins(plant.seed, (std::uint64_t{key[0]} << 32) | key[1]);
  const std::int64_t position = sequence.sequence.position();
  std::vector<Token> tokens(tree.tokens().begin(), tree.tokens().end());
  int replaced = 0;
  for (int node = 1; node <= tree.drafted(); ++node) {
    const auto at = static_cast<std::size_t>(node);
    const auto draw = static_cast<std::uint32_t>(node);
    if (!coins.bernoulli(plant.amount, {position, Purpose::accept, draw})) continue;
    const auto other = static_cast<Token>(coins.uniform({position, Purpose::draft, draw}) * (vocab - 1));
    tokens[at] = other < tokens[at] ? other : other + 1;
    draft.q_of[at] = Draft::kOneHot;
    ++replaced;
  }
  if (replaced == 0) return 0;
  TokenTree changed;
  changed.reset(tokens[0]);
  for (int node = 1; node < tree.size(); ++node)
    changed.add(tokens[static_cast<std::size_t>(node)], tree.parent(node), tree.kind(node));
  draft.tree = std::move(changed);
  return replaced;
}

class PlantedExecutor final : public StepExecutor {
 public:
  PlantedExecutor(std::unique_ptr<StepExecutor> inner, bool on_device, int vocab)
      : inner_(std::move(inner)), on_device_(on_device), vocab_(vocab), plant_(current_plant()) {}

  std::string begin(RunningSequence& sequence) override {
    if (on_device_) return "this program plants faults, and only in steps that the host runs";
    return inner_->begin(sequence);
  }
  int rows_in_flight(int nodes) const override { return inner_->rows_in_flight(nodes); }

  void draft(Strategy& strategy, const StepGroup& group) override {
    begun_ns_ = wall_now_ns();
    delayed_ns_ = 0;
    waits_ = true;
    delay_in(Fault::draft);
    inner_->draft(strategy, group);
    if (plant_.fault != Fault::acceptance) return;
    for (RunningSequence* sequence : group.running) {
      tally().drafted += sequence->draft.tree.drafted();
      tally().replaced += replace_tokens(*sequence, plant_, vocab_);
    }
  }
  void lay_out(const StepGroup& group) override { inner_->lay_out(group); }
  void forward(const StepGroup& group) override {
    delay_in(Fault::verification);
    inner_->forward(group);
  }
  void judge(const StepGroup& group) override { inner_->judge(group); }
  void commit(RunningSequence& sequence) override {
    delay_in(Fault::bookkeeping);
    inner_->commit(sequence);
  }
  void observe(Strategy& strategy, const StepGroup& group, std::span<const Outcome> outcomes) override {
    inner_->observe(strategy, group, outcomes);
    last_ns_ = wall_now_ns() - begun_ns_ - delayed_ns_;
    Tally& counts = tally();
    ++counts.steps;
    counts.step_ns += last_ns_;
    counts.last_ns = last_ns_;
    counts.delay_ns += delayed_ns_;
  }
  bool fetch_rows(RunningSequence& sequence) override { return inner_->fetch_rows(sequence); }
  void finish(RunningSequence& sequence) override { inner_->finish(sequence); }

 private:
  /// Spins if the fault is here. At most once in a step, however many sequences are committed.
  void delay_in(Fault fault) {
    if (plant_.fault != fault || !waits_) return;
    waits_ = false;
    const std::int64_t begun = wall_now_ns();
    spin(delay_ns(plant_, last_ns_));
    delayed_ns_ = wall_now_ns() - begun;
  }

  std::unique_ptr<StepExecutor> inner_;
  bool on_device_;
  int vocab_;
  Plant plant_;
  std::int64_t begun_ns_ = 0, delayed_ns_ = 0;  // of the current step
  std::int64_t last_ns_ = 0;                    // time of the last step without its delay; 0 before the first
  bool waits_ = false;                          // the delay of the current step is still to come
};

}  // namespace

std::unique_ptr<StepExecutor> with_plant(std::unique_ptr<StepExecutor> executor, bool on_device,
                                         const ExecutorSetting& setting) {
  const StrategyInfo* const info = recorded_strategy(setting.strategy_name);
  if (executor == nullptr || (!on_device && info != nullptr && info->is_baseline)) return executor;
  if (current_plant().fault == Fault::acceptance && !setting.use.exits.empty()) {
    throw Error(
        {.what = "--plant acceptance",
         .got = std::string(setting.strategy_name) + ", which leaves rows in flight for the verification",
         .expected = "a strategy whose draft is fed as a whole",
         .advice = "Plant a delay, or leave the case out with --filter."});
  }
  return std::make_unique<PlantedExecutor>(std::move(executor), on_device, setting.target->config().vocab);
}

}  // namespace speclab::planted
