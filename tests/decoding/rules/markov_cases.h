#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/theory/audit/enumerate.h"
#include "tests/decoding/loop/loop_fixture.h"

/// Decodes on first-order Markov chains, whose joint law is known. Shared by tests that compare the law of
/// whole generations with it.
namespace speclab::markov {

inline constexpr int kVocab = 3;

struct Case {
  std::string name;
  StrategyChoice strategy;
  std::vector<Token> prompt{0, 2, 1};
  bool patient = true;  ///< false: too slow with the rule `iterative`, which draws until it accepts
  int length = 5;       ///< number of tokens whose joint law is sampled
  /// How the children of a node were drawn, if there are several: independently of each other, in a tree of
  /// any shape or only at the pending token. chain: no node has several.
  enum class Children { any, independent, independent_paths, chain } children = Children::any;
  int drafts = 1;       ///< number of draft models
  bool divides = true;  ///< false: drafts on the target's session, which cannot be divided over devices
};

/// The draft models of a case. `table` makes them.
std::vector<fixtures::ModelPtr> drafts_of(
    const Case& c,
    fixtures::ModelPtr (*table)(int vocab, std::uint64_t seed, double spread) = fixtures::random_markov);

/// True if the rule judges the drafts of this case. Every rule judges chains.
bool takes(const AcceptanceRule& rule, const Case& c);
/// Every strategy, with drafts small enough for enumeration.
std::vector<Case> small_cases();
/// Those of them whose strategy has a trained head.
std::vector<Case> head_cases();
/// Trees whose children are drawn independently, small enough for enumeration.
std::vector<Case> independent_cases();
/// A drawn chain of two tokens of each kind of trained head, small enough for enumeration.
std::vector<Case> drawn_chains_of_heads();
/// The small cases, the independent ones, longer chains, larger trees, and trees of several sources, whose
/// shape depends on the drawn tokens.
std::vector<Case> all_cases();

/// The strategy "composition" with a chain of the model that is short, which leaves more room for copies and
/// runners-up beside its first tokens.
StrategyChoice surest_few(const std::string& order);

/// The costs of a case with a budget, null for other cases. Rows are so dear that a budget often keeps only a
/// part of a draft.
std::shared_ptr<const StepCosts> costs_of(const Case& c);

/// Runs generations of one case that differ only in their coins. `table` makes the models. The loop records
/// no details, only the text.
class Generations {
 public:
  using Table = fixtures::ModelPtr(int vocab, std::uint64_t seed, double spread);
  Generations(const Case& c, const fixtures::json& options, LoopOptions loop = {},
              Table* table = fixtures::random_markov);
  GenerationRecord run(const Coins& coins);
  std::vector<GenerationRecord> run(std::span<const Coins> coins);  ///< one batch
  const fixtures::ModelPtr& target() const { return target_; }
  const GenerationOptions& options() const { return request_.options; }

 private:
  std::vector<Token> prompt_, reference_{1, 0, 2, 1};
  fixtures::ModelPtr target_;
  DecodeLoop loop_;
  Request request_;
};

/// An error by which two decisions share a coin: `instead` replaces the address of a coin by another one.
/// These are negative controls: the tests must detect each of them.
struct SharedCoins {
  std::string name;
  Case c;
  std::string rule;
  Coins::Address (*instead)(Coins::Address asked);
};
std::vector<SharedCoins> shared_coins();
/// `instead` for a chain whose coins are addressed by the absolute position of the token that they decide.
/// A rule over whole paths then uses coins of a step again in the next one.
Coins::Address coins_of_the_position(Coins::Address asked);

/// The law of the first `count` tokens after the token `last`: products of the chain's rows. A text ends at
/// `eos`.
std::map<enumerate::Outcome, double> chain_law(const fixtures::ModelPtr& model,
                                               const SamplingParams& sampling, Token last, int count,
                                               Token eos = -1);

}  // namespace speclab::markov
