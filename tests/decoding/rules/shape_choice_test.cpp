// The shape of a draft may depend on the text and on the rows after it, but not on the tokens drawn from
// these rows. The joint laws of whole generations show it, by enumeration: drafts whose shape follows the
// draft model's confidence, and negative controls whose shape follows a drawn token.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/measure/run_result.h"
#include "tests/decoding/rules/markov_cases.h"

namespace speclab::shape_choice_test {
namespace {

using namespace speclab::fixtures;
using enumerate::Law;

constexpr int kTokens = 4;

/// The distance of the joint law of the first tokens from the target's.
double distance(const ModelPtr& target, const ModelPtr& draft, const StrategyChoice& strategy,
                const std::string& rule, int* accepted = nullptr) {
  DecodeLoop loop(target, draft, strategy, {.capacity = 32, .hash_rows = false, .details = false});
  const std::vector<Token> prompt = {0, 1};
  Request request;
  request.options = generation({{"max_tokens", kTokens}, {"rule", rule}, {"temperature", 1}});
  request.prompt = prompt;
  const Law law = enumerate::law_of([&](const Coins& coins) {
    request.coins = coins;
    const GenerationRecord record = loop.run(request);
    if (accepted != nullptr) *accepted += total(record, &StepRecord::accepted);
    return record.tokens;
  });
  return enumerate::total_variation(law.mass,
                                    markov::chain_law(target, {.temperature = 1}, prompt.back(), kTokens));
}

/// The model's rows: probabilities by the token before.
std::vector<std::vector<double>> rows_of(const ModelPtr& model) {
  std::vector<std::vector<double>> rows;
  for (Token token = 0; token < model->config().vocab; ++token) {
    rows.emplace_back(static_cast<std::size_t>(model->config().vocab));
    for (const auto& [text, p] : markov::chain_law(model, {.temperature = 1}, token, 1))
      rows.back()[static_cast<std::size_t>(text.front())] = p;
  }
  return rows;
}

/// Between the lowest largest probability of a row and the next one.
double lowest_split(const std::vector<std::vector<double>>& rows) {
  std::vector<double> surest;
  for (const std::vector<double>& row : rows) surest.push_back(*std::ranges::max_element(row));
  std::ranges::sort(surest);
  return (surest[0] + surest[1]) / 2;
}

// Four tokens; the draft model's rows lie in three ranges of confidence, so steps after different tokens
// draft different trees. Rules that need independent draws, or paths, get them. A rule that judges paths
// refuses paths with equal tokens and different lengths, so all paths of a tree are as long for it.
TEST(ShapeChoice, TreesByConfidenceHaveTheTargetsJointLawWithEveryTreeRule) {
  const ModelPtr target = random_markov(4, 21, 1.5), draft = random_markov(4, 22, 1.5);
  std::vector<double> surest;
  for (const std::vector<double>& row : rows_of(draft)) surest.push_back(*std::ranges::max_element(row));
  std::ranges::sort(surest);
  const double low = (surest[0] + surest[1]) / 2, high = (surest[2] + surest[3]) / 2;
  ASSERT_TRUE(surest[0] < low && low < surest[1] && surest[2] < high && high < surest[3]);
  const auto range = [](double from, double to, const std::vector<int>& parents,
                        const std::vector<int>& ranks) {
    return json{{"from", from}, {"to", to}, {"parents", parents}, {"ranks", ranks}};
  };
  const TempDir dir;
  const auto file_of = [&](const char* name, const json& first, const json& middle) {
    json file = {{"format", kTreesFormat}};
    file["trees"] = {first, middle, range(high, 1, {0, 1}, {1, 1})};
    const std::string path = (dir.path() / name).string();
    write_json_file(path, file);
    return path;
  };
  const std::string trees = file_of("trees.json", range(0, low, {0, 0}, {1, 2}),
                                    range(low, high, {0, 0, 1}, {1, 2, 1})),
                    paths = file_of("paths.json", range(0, low, {0, 0, 1, 2}, {1, 2, 1, 1}),
                                    range(low, high, {0, 0}, {1, 2}));
  int rules = 0;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss({}, {.temperature = 1}) != LossClass::l1 || rule.name == "coupled" || rule.chains_only ||
        rule.name.starts_with("iterative"))
      continue;
    const bool independent = rule.independent_children_only || rule.independent_paths_only;
    int accepted = 0;
    EXPECT_LT(distance(target, draft,
                       choose("tree_speculation",
                              {{"tree", rule.independent_paths_only ? paths : trees},
                               {"children", independent ? "independent" : "without_replacement"}}),
                       std::string(rule.name), &accepted),
              1e-12)
        << rule.name;
    EXPECT_GT(accepted, 0) << rule.name;
    ++rules;
  }
  EXPECT_GE(rules, 6);
}

/// Drafts nothing instead of a tree, by one of three measures. `by_row` looks at the target's row, which no
/// real strategy knows before the target has run; the text then still has the target's law, because the
/// choice depends on the text alone. The other two look at the first drawn token as well.
enum class Drop { by_row, by_p_of_the_token, by_q_of_the_token };

template <Drop kDrop>
class DropsTrees final : public Strategy {
 public:
  explicit DropsTrees(const Resources& resources)
      : tree_(choose("tree_speculation", {{"widths", {2, 1}}}).make(resources)),
        p_(rows_of(resources.target)),
        q_(rows_of(resources.draft)),
        split_(lowest_split(p_)) {}
  void begin(const Sequence& sequence) override { tree_->begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    tree_->draft(sequences, drafts);
    Draft& draft = *drafts[0];
    if (draft.tree.drafted() == 0) return;
    const auto last = static_cast<std::size_t>(draft.tree.token(0)),
               token = static_cast<std::size_t>(draft.tree.token(1));
    const bool drop = kDrop == Drop::by_row              ? *std::ranges::max_element(p_[last]) < split_
                      : kDrop == Drop::by_p_of_the_token ? p_[last][token] < q_[last][token]
                                                         : q_[last][token] < .4;
    if (drop) draft.reset(draft.tree.token(0));
  }

 private:
  std::unique_ptr<Strategy> tree_;
  std::vector<std::vector<double>> p_, q_;
  double split_;
};

template <Drop kDrop>
double distance_with(const ModelPtr& target, const ModelPtr& draft) {
  static const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<DropsTrees<kDrop>>(resources);
      });
  int accepted = 0;
  const double found = distance(target, draft, StrategyChoice(entry), "rejection", &accepted);
  EXPECT_GT(accepted, 0);
  return found;
}

TEST(ShapeChoice, AShapeThatLooksAtADrawnTokenIsSeen) {
  const ModelPtr target = random_markov(3, 11, 1.5), draft = random_markov(3, 12, 1.5);
  EXPECT_LT(distance_with<Drop::by_row>(target, draft), 1e-12);
  EXPECT_GT(distance_with<Drop::by_p_of_the_token>(target, draft), 1e-3);
  EXPECT_GT(distance_with<Drop::by_q_of_the_token>(target, draft), 1e-3);
}

/// Drafts one child of the pending token, or two that are drawn independently. The confidence decides: that
/// of the row, or the q of the first drawn token.
template <bool kOfTheToken>
class OneOrTwo final : public Strategy {
 public:
  explicit OneOrTwo(const Resources& resources)
      : rows_(rows_of(resources.draft)), split_(lowest_split(rows_)) {}
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    const Sequence& sequence = *sequences[0];
    Draft& draft = *drafts[0];
    if (sequence.depth_limit < 1) return;
    const std::vector<double>& row = rows_[static_cast<std::size_t>(sequence.tokens.back())];
    int index = Draft::kOneHot;
    draft.new_q(&index).assign_weights(row);
    int children = 1;
    for (int child = 0; child < children; ++child) {
      const Distribution& q = draft.q[static_cast<std::size_t>(index)];
      const Token token = q.sample(sequence.coins, sequence.draft_coin(draft.tree.size()));
      draft.add(token, 0, index, static_cast<float>(q.prob(token)));
      const double confidence = kOfTheToken ? q.prob(token) : *std::ranges::max_element(row);
      if (child == 0 && confidence < split_) children = 2;
    }
    draft.source = "draft";
  }

 private:
  std::vector<std::vector<double>> rows_;
  double split_;
};

// K-SEQ (Sun et al. 2023, SpecTr) tests each child with a factor rho that depends on the number of children.
// The rule "rejection" tests one child after the other and does not know how many follow.
//
// The control is exact by chance if in every row the tokens without a sibling all have p >= rho q, or the
// tokens with one all have. Then one of the two tests always accepts. Here the row after token 1 has tokens
// of both kinds with p < rho q.
TEST(ShapeChoice, TheNumberOfSiblingsMustNotFollowADrawnToken) {
  const ModelPtr target = random_markov(3, 21, 1.5), draft = random_markov(3, 22, 1.5);
  const StrategyEntry by_row =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<OneOrTwo<false>>(resources);
      });
  const StrategyEntry by_token =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<OneOrTwo<true>>(resources);
      });
  for (const char* rule : {"rejection", "k_seq"})
    EXPECT_LT(distance(target, draft, StrategyChoice(by_row), rule), 1e-12) << rule;
  EXPECT_LT(distance(target, draft, StrategyChoice(by_token), "rejection"), 1e-12);
  EXPECT_GT(distance(target, draft, StrategyChoice(by_token), "k_seq"), 1e-3);
}

}  // namespace
}  // namespace speclab::shape_choice_test
