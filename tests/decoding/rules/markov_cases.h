#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/decoding/rules/enumerate.h"
#include "tests/decoding/loop/loop_fixture.h"

/// Decoding on first-order Markov chains, whose joint law is known: what proofs of whole generations have in
/// common.
namespace speclab::markov {

inline constexpr int kVocab = 3;

struct Case {
  std::string name;
  StrategyChoice strategy;
  std::vector<Token> prompt{0, 2, 1};
  bool patient = true;  ///< classical rejection sampling, which draws until it accepts, ends within reason
  int length = 5;       ///< tokens whose joint law is looked at by sampling
};

/// Every strategy, with drafts that are small enough to be enumerated.
std::vector<Case> small_cases();
/// These and longer chains, larger trees, and trees of several sources whose shape depends on what was drawn.
std::vector<Case> all_cases();

/// Generations of one case that differ in their coins alone, by models made by `table`. The loop records
/// nothing that the text does not need.
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
  fixtures::ModelPtr target_, draft_;
  DecodeLoop loop_;
  Request request_;
};

/// A way in which decisions can come to share a coin: where a coin is asked for, that of another address is
/// given. Negative controls: every one of them must be noticed.
struct SharedCoins {
  std::string name;
  Case c;
  std::string rule;
  Coins::Address (*instead)(Coins::Address asked);
};
std::vector<SharedCoins> shared_coins();

/// Law of the first `count` tokens behind the token `last`, as the product of the chain's rows. A text ends
/// with `eos`.
std::map<enumerate::Outcome, double> chain_law(const fixtures::ModelPtr& model,
                                               const SamplingParams& sampling, Token last, int count,
                                               Token eos = -1);

}  // namespace speclab::markov
