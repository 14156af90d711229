// Verifies drafts whose first layers have run already: the strategy drafted with early exits on the
// target's own session (TargetUse::exits). The rows in flight keep the K/V of these layers and the hidden
// states at the exits, so the verifying forward runs only the remaining layers for them. The last drafted
// token was not fed while drafting. Its first layers run before the verifying forward, in a forward without
// the output head. If rows stopped at different layers, the rows of the first exit are taken on to the second
// exit, then the rows of both exits to the third, and so on. So the weights of each layer are read once.
// Logits and cache have the same bits as after one forward of the whole draft (LayerPart).
#include <algorithm>

#include "core/base/error.h"
#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {
namespace {

class ExitExecutor final : public StepExecutor {
 public:
  explicit ExitExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence&) override {
    if (setting_.options->verify != VerifyWith::one_pass || setting_.options->devices > 1) {
      return fmt::format("{} leaves rows in flight, which need a verification in one pass on one device",
                         setting_.strategy_name);
    }
    return {};
  }

  void lay_out(const StepGroup& group) override {
    const std::span<const int> exits(setting_.use.exits);
    missing_.clear();
    later_.resize(exits.size() - 1);
    for (std::vector<Feed>& feeds : later_) feeds.clear();
    rest_.clear();
    whole_.clear();
    for (RunningSequence* sequence : group.running) {
      const TokenTree& tree = sequence->draft.tree;
      Session& session = *sequence->session;
      sequence->expect_rows();
      sequence->fed.assign(tree.tokens().begin(), tree.tokens().end());
      sequence->parents.assign(tree.parents().begin(), tree.parents().end());
      for (int node = 0; node < tree.size(); ++node) {
        if (tree.wants_row(node)) sequence->rows.push_back(node);
      }
      check_rows_in_flight(setting_, sequence->fed.size(), "Draft less.");
      const auto flying = static_cast<std::size_t>(session.in_flight());
      const std::span<const std::int32_t> parents(sequence->parents);
      SPECLAB_CHECK(
          flying <= parents.size() && std::ranges::equal(session.parents_in_flight(), parents.first(flying)),
          "{} rows in flight that are not the first nodes of a draft of {}", flying, parents.size());
      Feed feed{&session, sequence->fed, sequence->parents, sequence->rows, sequence->logits.data()};
      feed.maxima = setting_.reads->rows ? &sequence->maxima : nullptr;
      if (flying == 0) {
        whole_.push_back(feed);
        continue;
      }
      if (flying < parents.size()) {
        Feed missing{
            &session, TokenSpan(sequence->fed).subspan(flying), parents.subspan(flying), {}, nullptr};
        missing.continues = true;
        missing.layers = LayerPart::until(exits[0]);
        missing_.push_back(missing);
      }
      for (std::size_t level = 0; level + 1 < exits.size(); ++level) {
        const auto stopped = session.exits_in_flight();
        const auto later = std::ranges::find_if(stopped, [&](int exit) { return exit <= exits[level]; });
        const auto first = static_cast<std::size_t>(later - stopped.begin());
        if (first == parents.size()) continue;
        Feed next{&session, TokenSpan(sequence->fed).subspan(first), parents.subspan(first), {}, nullptr};
        next.layers = LayerPart::between(exits[level], exits[level + 1]);
        later_[level].push_back(next);
      }
      feed.layers = LayerPart::from(exits.back());
      rest_.push_back(feed);
    }
  }

  // A sequence that drafted nothing has no rows in flight. It takes part only in the last forward, so what is
  // counted for it does not depend on the other sequences.
  void forward(const StepGroup&) override {
    run(missing_);
    for (const std::vector<Feed>& feeds : later_) run(feeds);
    run(rest_);
    run(whole_);
  }

  void commit(RunningSequence& sequence) override {
    const std::vector<int>& path = sequence.acceptance.path;
    keep_.assign(1, 0);
    keep_.insert(keep_.end(), path.begin(), path.begin() + (sequence.emitted - 1));
    sequence.session->commit(keep_);
  }

 private:
  void run(std::span<const Feed> feeds) const {
    if (!feeds.empty()) setting_.target->forward(feeds);
  }

  ExecutorSetting setting_;
  std::vector<Feed> missing_, rest_, whole_;
  std::vector<std::vector<Feed>> later_;  // [exits - 1], from each exit to the next one
  std::vector<int> keep_;
};

}  // namespace

std::unique_ptr<StepExecutor> make_exit_executor(const ExecutorSetting& setting) {
  if (setting.use.exits.empty()) return nullptr;
  if (!setting.reads->hidden.empty()) {
    throw Error({.what = fmt::format("strategy {}", setting.strategy_name),
                 .got = "early exits of the target together with hidden states to read",
                 .expected =
                     "only one of the two, because a forward that goes on after an early exit collects no "
                     "hidden states",
                 .advice = "Draft without early exits, or with a strategy that reads no hidden states."});
  }
  return std::make_unique<ExitExecutor>(setting);
}

}  // namespace speclab
