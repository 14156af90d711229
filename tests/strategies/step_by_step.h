#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::fixtures {

using TreeNode = std::pair<int, Token>;  ///< parent and token

/// Runs a strategy on one sequence without a decode loop: the test plays the target.
class StepByStep {
 public:
  explicit StepByStep(const std::string& name, const json& options = json::object(),
                      ModelPtr target = nullptr) {
    static const ModelPtr shared = tiny_target();
    resources_.target = target ? std::move(target) : shared;
    resources_.capacity = 256;
    strategy_ = choose(name, options).make(resources_);
    sequence.depth_limit = 100;
  }

  /// Starts a sequence. The last `emitted` tokens of `text` count as output, the others as the prompt.
  void begin(const std::vector<Token>& text, std::size_t emitted = 1) {
    sequence.tokens = text;
    sequence.prompt_length = static_cast<int>(text.size() - emitted);
    strategy_->begin(sequence);
  }
  /// Lets the strategy draft after the text.
  Draft& draft() {
    draft_.reset(sequence.tokens.back());
    const Sequence* const sequences[] = {&sequence};
    Draft* const drafts[] = {&draft_};
    strategy_->draft(sequences, drafts);
    EXPECT_EQ(draft_.source.empty(), draft_.tree.drafted() == 0);
    return draft_;
  }
  /// The draft as a list of nodes, which must all be one-hot.
  std::vector<TreeNode> nodes() {
    draft();
    std::vector<TreeNode> out;
    for (int node = 1; node < draft_.tree.size(); ++node) {
      EXPECT_EQ(draft_.q_at(node), nullptr);
      out.emplace_back(draft_.tree.parent(node), draft_.tree.token(node));
    }
    return out;
  }
  /// Appends `emitted` to the text, as the result of the last draft with `acceptance` and `rows`.
  void observe(const std::vector<Token>& emitted, const Acceptance& acceptance = {},
               const StepRows& rows = {}) {
    sequence.tokens.insert(sequence.tokens.end(), emitted.begin(), emitted.end());
    const Sequence* const sequences[] = {&sequence};
    const Outcome outcome{&draft_, &acceptance, static_cast<int>(emitted.size()), rows};
    strategy_->observe(sequences, {&outcome, 1});
  }

  const Draft& last() const { return draft_; }

  Sequence sequence;

 private:
  Resources resources_;
  std::unique_ptr<Strategy> strategy_;
  Draft draft_;
};

}  // namespace speclab::fixtures
