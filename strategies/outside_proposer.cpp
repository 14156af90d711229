// Outside proposer: another program proposes the tokens, for example a class in Python
// (speclab.measure_proposer). The engine asks it over a socket and does everything else as for any strategy:
// the target, the rule, the cache, the coins and the record. Tokens alone are one-hot. If the program also
// hands over rows q and the temperature is above 0, the engine draws the tokens from them with its own coins.
// So with a lossless rule the text keeps the target's distribution, whatever the program does.
//
// Paper:       none; the idea is the user's own.
// Draft cost:  the time of the program and of the messages. Such times say nothing about an implementation in
//              the engine, so the record marks them (StrategyInfo::needs_program).
// Loses when:  it is not made to win time. It measures the acceptance of an idea.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/outside/proposer_link.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

using outside::Proposal;

struct OutsideProposerOptions {
  std::string proposer;
  int gamma = 4;
  double time_limit = 30;  // s
  void fields(OptionVisitor& visit) {
    visit("proposer", proposer, "name of the proposer, for the record");
    visit("gamma", gamma, Range<int>{1, 64}, "largest number of tokens of a chain, largest depth of a tree");
    visit("time_limit", time_limit, Range<double>{.01, 86400},
          "longest wait for one answer of the proposer, in seconds; after it the text ends with an error");
  }
};

class OutsideProposer final : public Strategy {
 public:
  OutsideProposer(const OutsideProposerOptions& options, const Resources& resources)
      : options_(options),
        vocab_(resources.target->config().vocab),
        link_(options.proposer, vocab_, resources.batch, options.gamma, options.time_limit) {}

  int max_nodes() const override { return 1 + Proposal::kMostTokens; }

  void begin(const Sequence& sequence) override { link_.begin(sequence); }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      draft_one(*sequences[i], *drafts[i]);
      if (drafts[i]->tree.drafted() > 0) drafts[i]->source = "proposer";
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const int accepted =
          std::min(static_cast<int>(outcomes[i].acceptance->path.size()), outcomes[i].emitted);
      link_.observe(*sequences[i], accepted, outcomes[i].emitted);
    }
  }

 private:
  // Asks until the draft is complete. Rows hold for the tokens that the program proposed. When the engine has
  // drawn another token, it asks again, and the program sees the drawn token. So each token is drawn from the
  // row that belongs to the tokens before it.
  void draft_one(const Sequence& sequence, Draft& draft) {
    const int limit = std::min(options_.gamma, sequence.depth_limit);
    path_.clear();
    while (static_cast<int>(path_.size()) < limit) {
      const Proposal& proposal = link_.propose(sequence, path_, limit - static_cast<int>(path_.size()));
      if (proposal.tree) {
        add_tree(proposal, draft);
        return;
      }
      if (proposal.row_count == 0) {
        for (const Token token : proposal.tokens) add(token, draft, Draft::kOneHot, -1);
        return;
      }
      if (!add_from_rows(proposal, sequence, draft)) return;
    }
  }

  // Returns true if the program is to be asked for what comes after the tokens that were added.
  bool add_from_rows(const Proposal& proposal, const Sequence& sequence, Draft& draft) {
    const bool draws = sequence.sampling.temperature > 0;
    const bool rows_alone = proposal.tokens.empty();
    for (int i = 0; i < proposal.row_count; ++i) {
      int index = Draft::kOneHot;
      Distribution& q = draws ? draft.new_q(&index) : scratch_;
      const std::span<const float> row = proposal.row(i, vocab_);
      weights_.assign(row.begin(), row.end());
      q.assign_weights(weights_);
      const Token proposed = rows_alone ? -1 : proposal.tokens[static_cast<std::size_t>(i)];
      const int depth = static_cast<int>(path_.size()) + 1;
      Token token = rows_alone ? q.argmax() : proposed;
      if (draws) {
        token = sequence.coupled ? q.sample_coupled(sequence.coins, sequence.position() + depth)
                                 : q.sample(sequence.coins, sequence.draft_coin(depth));
      }
      add(token, draft, index, static_cast<float>(q.prob(token)));
      if (token != proposed) return true;
    }
    return false;
  }

  // Appends a token to the chain.
  void add(Token token, Draft& draft, int q_index, float confidence) {
    draft.add(token, static_cast<int>(path_.size()), q_index, confidence);
    path_.push_back(token);
  }

  void add_tree(const Proposal& proposal, Draft& draft) {
    if (!path_.empty()) {
      throw Error({"proposer " + options_.proposer, "a tree after tokens that were drawn from rows",
                   "a chain in the rest of the step", "Propose trees in the first answer of a step only."});
    }
    // Node 0 is the pending token, so the token at place i becomes node i + 1.
    for (std::size_t i = 0; i < proposal.tokens.size(); ++i)
      draft.add(proposal.tokens[i], proposal.parents[i] + 1);
  }

  OutsideProposerOptions options_;
  int vocab_;
  outside::ProposerLink link_;
  std::vector<Token> path_;      // the chain that was drafted in this step
  std::vector<double> weights_;  // [vocab]
  Distribution scratch_;
};

const RegisterStrategy<OutsideProposerOptions, OutsideProposer> registered{{
    .name = "outside_proposer",
    .summary = "what another program proposes, such as a class in Python; its times contain that program",
    .paper = "none: the user's own proposer",
    .draft_source = "another program",
    .stop_rule = "the proposer; at most gamma tokens",
    .verification = "chain or tree",
    .criterion = "any rule; one-hot q, or rows of the proposer",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .needs_program = true,
    .follows_steps = true,
}};

}  // namespace
}  // namespace speclab
