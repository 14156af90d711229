#include "tests/decoding/rules/markov_cases.h"

#include <utility>

#include "core/decoding/budget/step_costs.h"
#include "core/decoding/loop/prefill_cache.h"
#include "core/decoding/rows/distribution.h"
#include "core/model/net/session.h"

// The law of a Markov chain, generations of a case, and coins that two decisions share. The cases are in
// markov_cases.cpp.
namespace speclab::markov {

using namespace fixtures;

std::map<enumerate::Outcome, double> chain_law(const ModelPtr& model, const SamplingParams& sampling,
                                               Token last, int count, Token eos) {
  const int vocab = model->config().vocab;
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(vocab));
  for (Token token = 0; token < vocab; ++token) {
    std::vector<float> logits(static_cast<std::size_t>(vocab));
    const auto session = model->open(4);
    session->prefill({&token, 1}, logits.data());
    Distribution row;
    row.assign_logits(logits, sampling, {}, vocab);
    row.probabilities(rows[static_cast<std::size_t>(token)]);
  }
  std::map<enumerate::Outcome, double> law{{{}, 1}};
  for (int i = 0; i < count; ++i) {
    std::map<enumerate::Outcome, double> longer;
    for (const auto& [text, mass] : law) {
      if (!text.empty() && text.back() == eos) {
        longer[text] += mass;
        continue;
      }
      for (Token next = 0; next < vocab; ++next) {
        enumerate::Outcome more = text;
        more.push_back(next);
        const double p =
            rows[static_cast<std::size_t>(text.empty() ? last : text.back())][static_cast<std::size_t>(next)];
        if (p > 0) longer[more] += mass * p;
      }
    }
    law = std::move(longer);
  }
  return law;
}

std::vector<ModelPtr> drafts_of(const Case& c, ModelPtr (*table)(int, std::uint64_t, double)) {
  std::vector<ModelPtr> drafts;
  for (int i = 0; i < c.drafts; ++i) drafts.push_back(table(kVocab, static_cast<std::uint64_t>(12 + i), 1.5));
  return drafts;
}

std::shared_ptr<const StepCosts> costs_of(const Case& c) {
  if (!c.strategy.needs_costs()) return nullptr;
  return std::make_shared<const StepCosts>(StepCosts{.target_ns = {10, 13, 15.5, 18.4},
                                                     .draft_ns = {.5, .6, .7},
                                                     .further_draft_ns = {{.2, .3}, {.2, .3}},
                                                     .layer_ns = 1,
                                                     .position_ns = 5});
}

Generations::Generations(const Case& c, const json& options, LoopOptions loop, Table* table)
    : prompt_(c.prompt),
      target_(table(kVocab, 11, 1.5)),
      loop_(target_, drafts_of(c, table), c.strategy, [&] {
        loop.capacity = 64;
        loop.hash_rows = loop.details = false;
        loop.prefills = std::make_shared<PrefillCache>();
        loop.costs = costs_of(c);
        return loop;
      }()) {
  request_.options = generation(options);
  request_.prompt = prompt_;
  request_.reference = reference_;
}

GenerationRecord Generations::run(const Coins& coins) {
  request_.coins = coins;
  return loop_.run(request_);
}

std::vector<GenerationRecord> Generations::run(std::span<const Coins> coins) {
  std::vector<Request> requests(coins.size(), request_);
  for (std::size_t i = 0; i < coins.size(); ++i) requests[i].coins = coins[i];
  return loop_.run(requests);
}

std::vector<SharedCoins> shared_coins() {
  using Address = Coins::Address;
  const Case chain{"", choose("speculative_sampling", {{"gamma", 2}})};
  const Case tree{"", choose("tree_speculation", {{"widths", {2, 1}}})};
  const Case copies{"", surest_few("tree"), {0, 1, 2, 0, 1, 0, 2, 1, 1}};
  std::vector<SharedCoins> all;
  all.push_back({"siblings", tree, "rejection", [](Address a) {
                   if (a.purpose == Purpose::draft) a.draw = a.draw <= 2 ? 1 : 3;
                   return a;
                 }});
  all.push_back({"all tokens of a draft", chain, "rejection", [](Address a) {
                   if (a.purpose == Purpose::draft) a.draw = 1;
                   return a;
                 }});
  all.push_back({"a token and its test", chain, "rejection", [](Address a) {
                   return a.purpose == Purpose::draft ? Address{a.position + a.draw, Purpose::accept, 0} : a;
                 }});
  all.push_back({"a test and the correction after it", chain, "rejection", [](Address a) {
                   return a.purpose == Purpose::residual ? Address{a.position, Purpose::accept, 0} : a;
                 }});
  all.push_back({"tests of two positions", chain, "rejection", [](Address a) {
                   if (a.purpose == Purpose::accept) a.position -= a.position % 2;
                   return a;
                 }});
  all.push_back({"all tokens of the target's own", chain, "sample_match", [](Address a) {
                   if (a.purpose == Purpose::target) a.position = 0;
                   return a;
                 }});
  all.push_back({"a token and a later step's for the same place", copies, "rejection", [](Address a) {
                   return a.purpose == Purpose::draft ? Address{a.position + a.draw, Purpose::draft, 0} : a;
                 }});
  // Rules over whole paths look at positions that they do not accept. If coins are addressed by absolute
  // position, the next step uses them again. Enumeration gives each decision a branch of its own and does not
  // see this. The rule "rejection" may use such addresses.
  const Case long_chain{"", choose("speculative_sampling", {{"gamma", 3}})};
  all.push_back({"a block and the next step", long_chain, "block", coins_of_the_position});
  // Nodes 2 i - 1 and 2 i of these trees have depth i.
  const auto of_pairs = [](Address a) {
    const std::uint32_t depth = (a.draw + 1) / 2, second = a.draw == 0 ? 0 : (a.draw + 1) % 2;
    if (a.purpose == Purpose::draft || (a.purpose == Purpose::accept && a.draw < 100))
      return Address{a.position + depth, a.purpose, second};
    if (a.purpose == Purpose::residual) return Address{a.position + depth + 1, a.purpose, 0};
    return a;
  };
  all.push_back({"a traversal and the next step",
                 {"", choose("tree_speculation", {{"widths", {2, 1, 1}}})},
                 "traversal",
                 of_pairs});
  all.push_back({"two paths and the next step",
                 {"", choose("tree_speculation", {{"sequences", 2}, {"length", 3}})},
                 "multi_path_block",
                 of_pairs});
  return all;
}

Coins::Address coins_of_the_position(Coins::Address asked) {
  if (asked.purpose == Purpose::draft || asked.purpose == Purpose::accept)
    return {asked.position + asked.draw, asked.purpose, 0};
  if (asked.purpose == Purpose::residual) return {asked.position + asked.draw + 1, asked.purpose, 0};
  return asked;
}

}  // namespace speclab::markov
