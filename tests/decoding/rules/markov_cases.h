#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/decoding/rules/enumerate.h"
#include "tests/decoding/loop/loop_fixture.h"

/// Decodes on first-order Markov chains, whose joint law is known. Shared by the proofs for whole
/// generations.
namespace speclab::markov {

inline constexpr int kVocab = 3;

struct Case {
  std::string name;
  StrategyChoice strategy;
  std::vector<Token> prompt{0, 2, 1};
  bool patient = true;  ///< classical rejection sampling, which draws until it accepts, ends soon enough
  int length = 5;       ///< number of tokens whose joint law is sampled
};

/// Every strategy, with drafts small enough for enumeration.
std::vector<Case> small_cases();
/// The same, and longer chains, larger trees, and trees of several sources whose shape depends on the drawn
/// tokens.
std::vector<Case> all_cases();

/// Generations of one case that differ in their coins alone, with models made by `table`. The loop records
/// only what the text needs.
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

/// A way in which decisions can share a coin: a question gets the coin of another address. These are negative
/// controls; the tests must notice each of them.
struct SharedCoins {
  std::string name;
  Case c;
  std::string rule;
  Coins::Address (*instead)(Coins::Address asked);
};
std::vector<SharedCoins> shared_coins();

/// Law of the first `count` tokens after the token `last`, the product of the chain's rows. A text ends with
/// `eos`.
std::map<enumerate::Outcome, double> chain_law(const fixtures::ModelPtr& model,
                                               const SamplingParams& sampling, Token last, int count,
                                               Token eos = -1);

}  // namespace speclab::markov
