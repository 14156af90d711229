// A proposer outside the engine: a thread of the test plays the other program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/theory/audit/enumerate.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/outside/proposer_peer.h"

namespace speclab::outside_proposer_test {
namespace {

using namespace speclab::fixtures;
using outside::Proposal;
using ::testing::HasSubstr;

const std::vector<Token> kOutsidePrompt{3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 3, 1};

std::vector<std::vector<Token>> drafted_by_step(const GenerationRecord& record) {
  std::vector<std::vector<Token>> out;
  for (const StepRecord& step : record.steps) {
    out.emplace_back();
    for (const DraftedToken& token : step.drafted) out.back().push_back(token.id);
  }
  return out;
}

/// A program that answers every request with the same proposal.
ProposerPeer::Propose fixed_answer(const Proposal& proposal) {
  return [proposal](const ProposerRequest&) { return proposal; };
}

Proposal proposed_chain(std::vector<Token> tokens, std::vector<float> rows = {}, int row_count = 0) {
  Proposal out;
  out.tokens = std::move(tokens);
  out.rows = std::move(rows);
  out.row_count = row_count;
  return out;
}

Proposal proposed_tree(std::vector<Token> tokens, std::vector<std::int32_t> parents) {
  Proposal out = proposed_chain(std::move(tokens));
  out.tree = true;
  out.parents = std::move(parents);
  return out;
}

class OutsideProposerTest : public ::testing::Test {
 protected:
  Decode decode_with(const json& strategy = json::object(), const json& options = json::object()) const {
    json all = {{"max_tokens", 60}};
    all.update(options);
    return {.target = target_,
            .strategy = choose("outside_proposer", strategy),
            .options = all,
            .prompt = kOutsidePrompt};
  }

  // A greedy text of a Markov chain repeats itself after at most 16 tokens, so copies are accepted.
  static constexpr int kSymbols = 16;
  ModelPtr target_ = random_markov(kSymbols, 3);
};

TEST_F(OutsideProposerTest, CopiesAreThoseOfPromptLookup) {
  const ProposerPeer peer(propose_copies);
  peer.use();
  for (const int gamma : {1, 4, 9}) {
    for (const json& sampling : {json{{"temperature", 0}}, json{{"temperature", 1}}}) {
      SCOPED_TRACE(std::to_string(gamma) + sampling.dump());
      const Decode outside = decode_with({{"gamma", gamma}}, sampling);
      Decode inside = outside;
      inside.strategy = choose("prompt_lookup", {{"length", gamma}, {"cut_at_end", false}});
      const GenerationRecord record = outside.run(), expected = inside.run();
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
      EXPECT_EQ(drafted_by_step(record), drafted_by_step(expected));
      EXPECT_GT(drafted(record), 0);
      for (const StepRecord& step : record.steps)
        EXPECT_EQ(step.source, step.drafted.empty() ? "" : "proposer");
    }
  }
}

TEST_F(OutsideProposerTest, TheProgramSeesTheTextAndWhatBecameOfIt) {
  std::vector<std::vector<Token>> texts;
  std::vector<int> steps;
  std::mutex mutex;  // the thread of the peer writes these lists
  const ProposerPeer peer([&](const ProposerRequest& request) {
    const std::lock_guard lock(mutex);
    texts.push_back(request.text);
    steps.push_back(request.step);
    EXPECT_EQ(request.drafted, 0);
    EXPECT_EQ(request.drawn, 0);
    EXPECT_LE(request.most, 4);
    return propose_copies(request);
  });
  peer.use();
  const GenerationRecord record = decode_with().run();
  std::vector<Token> text = kOutsidePrompt;
  text.push_back(record.tokens.front());
  ASSERT_EQ(peer.begun().size(), 1u);
  EXPECT_EQ(peer.begun().front(), text);
  const std::vector<ProposerPeer::Observed> observed = peer.observed();
  ASSERT_EQ(observed.size(), record.steps.size());
  const std::lock_guard lock(mutex);
  std::size_t asked = 0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    EXPECT_EQ(observed[i].first, record.steps[i].accepted);
    EXPECT_EQ(observed[i].second.size(), static_cast<std::size_t>(record.steps[i].emitted));
    if (asked < texts.size() && steps[asked] == static_cast<int>(i)) {
      EXPECT_EQ(texts[asked], text);
      ++asked;
    }
    text.insert(text.end(), observed[i].second.begin(), observed[i].second.end());
  }
  EXPECT_EQ(asked, texts.size());
  EXPECT_GE(asked + 1, observed.size()) << "only a step with room for no draft is not asked for one";
}

// Every row that the program gives, [3 tokens], by the token before.
const std::vector<std::vector<float>> kOutsideRows{{.5f, .3f, .2f}, {.1f, .6f, .3f}, {.25f, .25f, .5f}};

/// Proposes the most probable tokens with their rows, or one row and no tokens.
Proposal proposed_rows(const ProposerRequest& request, bool rows_alone) {
  Proposal out;
  Token last = request.text.back();
  for (int i = 0; i < (rows_alone ? 1 : request.most); ++i) {
    const std::vector<float>& row = kOutsideRows[static_cast<std::size_t>(last)];
    out.rows.insert(out.rows.end(), row.begin(), row.end());
    ++out.row_count;
    last = static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
    if (!rows_alone) out.tokens.push_back(last);
  }
  return out;
}

// The engine draws from the rows, whatever tokens the program proposes. The law of the text is the target's.
TEST_F(OutsideProposerTest, DrawnTokensLeaveTheLawOfTheText) {
  const ModelPtr target = random_markov(3, 11, 1.5);
  const auto law = [&](const StrategyChoice& strategy, const char* rule, int* accepted) {
    DecodeLoop loop(target, nullptr, strategy, {.capacity = 32});
    Decode decode{.target = target,
                  .options = {{"max_tokens", 4}, {"temperature", 1}, {"rule", rule}},
                  .prompt = {0, 2, 1}};
    Request request = decode.request();
    return enumerate::law_of([&](const Coins& coins) {
      request.coins = coins;
      const GenerationRecord record = loop.run(request);
      *accepted += total(record, &StepRecord::accepted);
      return record.tokens;
    });
  };
  int none = 0;
  const auto expected = law(choose("autoregressive"), "rejection", &none).mass;
  EXPECT_EQ(none, 0);
  for (const bool rows_alone : {false, true}) {
    const ProposerPeer peer(
        [=](const ProposerRequest& request) { return proposed_rows(request, rows_alone); });
    peer.use();
    for (const char* rule : {"rejection", "block"}) {
      int accepted = 0;
      const auto found = law(choose("outside_proposer", {{"gamma", 2}}), rule, &accepted);
      EXPECT_LT(enumerate::total_variation(found.mass, expected), 1e-12) << rule << rows_alone;
      EXPECT_GT(accepted, 0);
    }
  }
}

TEST_F(OutsideProposerTest, ADrawnTokenIsPartOfTheNextRequest) {
  const ModelPtr target = random_markov(3, 11, 1.5);
  std::atomic<int> again = 0;
  const ProposerPeer peer([&](const ProposerRequest& request) {
    again += request.drafted > 0 ? 1 : 0;
    EXPECT_EQ(request.drawn, 1);
    EXPECT_LE(request.most + request.drafted, 2);
    return proposed_rows(request, false);
  });
  peer.use();
  DecodeLoop loop(target, nullptr, choose("outside_proposer", {{"gamma", 2}}), {.capacity = 200});
  Decode decode{.target = target, .options = {{"max_tokens", 100}, {"temperature", 1}}, .prompt = {0, 2, 1}};
  const GenerationRecord record = loop.run(decode.request());
  EXPECT_GT(again.load(), 0) << "the first token was not always the proposed one";
  std::set<Token> firsts;
  for (std::size_t i = 0; i + 2 < record.steps.size(); ++i) {
    ASSERT_EQ(record.steps[i].drafted.size(), 2u);
    const DraftedToken &first = record.steps[i].drafted[0], &second = record.steps[i].drafted[1];
    firsts.insert(first.id);
    // The row of the second token belongs to the drawn first token.
    EXPECT_FLOAT_EQ(second.confidence,
                    kOutsideRows[static_cast<std::size_t>(first.id)][static_cast<std::size_t>(second.id)]);
    if (second.tested) {
      EXPECT_NEAR(second.q, second.confidence, 1e-6);
    }
  }
  EXPECT_EQ(firsts.size(), 3u);
}

TEST_F(OutsideProposerTest, GreedyDraftsTakeTheProposedTokens) {
  std::vector<float> row(kSymbols, 1.0f / (2 * kSymbols));
  row[5] += .5f;  // a draw would give 5 most often
  const ProposerPeer peer([&](const ProposerRequest& request) {
    if (request.most < 2) return Proposal();
    std::vector<float> rows = row;
    rows.insert(rows.end(), row.begin(), row.end());
    return proposed_chain({7, 5}, rows, 2);
  });
  peer.use();
  const GenerationRecord record = decode_with().run();
  EXPECT_EQ(drafted_by_step(record).front(), (std::vector<Token>{7, 5}));
  EXPECT_FLOAT_EQ(record.steps.front().drafted[0].confidence, 1.0f / 32);
  EXPECT_FLOAT_EQ(record.steps.front().drafted[1].confidence, .5f + 1.0f / 32);
  const ProposerPeer alone(fixed_answer(proposed_chain({}, row, 1)));
  alone.use();
  EXPECT_EQ(drafted_by_step(decode_with({{"gamma", 3}}).run()).front(), (std::vector<Token>{5, 5, 5}));
}

TEST_F(OutsideProposerTest, Trees) {
  const Decode plain{.target = target_, .options = {{"max_tokens", 60}}, .prompt = kOutsidePrompt};
  const GenerationRecord expected = plain.run();
  // Two children of the pending token, and below the second one the copies of the text.
  const ProposerPeer peer([](const ProposerRequest& request) {
    const Proposal chain = propose_copies(request);
    if (chain.tokens.empty()) return chain;
    Proposal tree = proposed_tree({(chain.tokens.front() + 1) % kSymbols, chain.tokens.front()}, {-1, -1});
    for (std::size_t i = 1; i < chain.tokens.size(); ++i) {
      tree.tokens.push_back(chain.tokens[i]);
      tree.parents.push_back(static_cast<std::int32_t>(i));
    }
    return tree;
  });
  peer.use();
  for (const char* rule : {"rejection", "traversal"}) {
    const GenerationRecord record = decode_with(json::object(), {{"rule", rule}}).run();
    EXPECT_EQ(record.tokens, expected.tokens) << rule;
    EXPECT_GT(total(record, &StepRecord::accepted), 0) << rule;
    const auto large =
        std::ranges::find_if(record.steps, [](const StepRecord& step) { return step.drafted.size() >= 3; });
    ASSERT_NE(large, record.steps.end());
    EXPECT_EQ(large->drafted[0].parent, 0);
    EXPECT_EQ(large->drafted[1].parent, 0);
    EXPECT_EQ(large->drafted[2].parent, 2);
  }
}

TEST_F(OutsideProposerTest, AnswersThatMakeNoSense) {
  const std::vector<float> uniform(kSymbols, 1.0f / kSymbols), half(kSymbols, .5f / kSymbols);
  std::vector<float> with_nan = uniform, without_seven = uniform, negative = uniform;
  with_nan[3] = std::nanf("");
  without_seven[8] += std::exchange(without_seven[7], 0.0f);
  negative[1] += 2 * std::exchange(negative[0], -1.0f / kSymbols);
  const Proposal few_parents = proposed_tree({1, 2}, {-1});
  const Proposal short_row = proposed_chain({7}, {.5f, .5f}, 1);
  const std::vector<Token> many(128, 1);
  const std::vector<std::pair<Proposal, const char*>> answers = {
      {proposed_chain({16}), "token 16 at place 0, expected ids from 0 to 15"},
      {proposed_chain({1, -1}), "token -1 at place 1"},
      {proposed_chain({1, 2, 3, 4, 5}), "5 tokens, expected at most 4"},
      {proposed_tree({1, 2}, {-1, 1}), "parent 1 of the token at place 1"},
      {proposed_tree({1, 2}, {-1, -2}), "parent -2"},
      {proposed_tree({1, 2, 3, 4, 5}, {-1, 0, 1, 2, 3}), "a token at depth 5, expected a depth of at most 4"},
      {proposed_tree(many, std::vector<std::int32_t>(128, -1)), "128 tokens, expected at most 127"},
      {few_parents, "4 bytes at its end"},
      {short_row, "8 bytes at its end, expected 16 numbers"},
      {proposed_chain({7, 8}, uniform, 1), "1 rows for a chain of 2 tokens"},
      {proposed_chain({7}, half, 1), "row 0 with the sum 0.5"},
      {proposed_chain({7}, with_nan, 1), "q(3) = nan in row 0"},
      {proposed_chain({7}, negative, 1), "q(0) = -0.0625 in row 0"},
      {proposed_chain({7}, without_seven, 1), "token 7 with q = 0 in row 0"},
  };
  for (const auto& [answer, words] : answers) {
    const ProposerPeer peer(fixed_answer(answer));
    peer.use();
    for (const double temperature : {0.0, 1.0}) {
      const std::string message =
          message_of([&] { decode_with({{"proposer", "Strange"}}, {{"temperature", temperature}}).run(); });
      EXPECT_THAT(message, HasSubstr(words));
    }
  }
}

TEST_F(OutsideProposerTest, AFailureOfTheProgramNamesTheStep) {
  const ProposerPeer peer([](const ProposerRequest& request) {
    if (request.step == 2) throw Error({"ValueError", "too tired", "", ""});
    return propose_copies(request);
  });
  peer.use();
  EXPECT_THAT(message_of([&] { decode_with({{"proposer", "Tired"}}).run(); }),
              HasSubstr("proposer Tired, step 2: got ValueError: got too tired"));
}

// A program that hangs must not make the run hang. Its late answer must not become that of another request.
TEST_F(OutsideProposerTest, AnAnswerThatDoesNotComeInTime) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::atomic<int> asked = 0;
  const ProposerPeer peer([&](const ProposerRequest& request) {
    ++asked;
    if (request.step == 2) ended.wait_for(std::chrono::seconds(5));
    return propose_copies(request);
  });
  peer.use();
  DecodeLoop loop(target_, nullptr, choose("outside_proposer", {{"proposer", "Slow"}, {"time_limit", .1}}),
                  {.capacity = 100});
  auto setup = decode_with();  // the request refers to its prompt
  const Request request = setup.request();
  const std::string message = message_of([&] { loop.run(request); });
  const int asked_in_time = asked.load();
  EXPECT_THAT(message, HasSubstr("proposer Slow, step 2: got no answer to `propose` within 0.1 s"));
  EXPECT_THAT(message, HasSubstr("set time_limit to more seconds"));
  EXPECT_THAT(message_of([&] { loop.run(request); }),
              HasSubstr("the connection between engine and proposer"));
  end.set_value();
  EXPECT_EQ(asked.load(), asked_in_time);
}

// No limit applies to a whole step, and a program that answers each request in time is not interrupted.
TEST_F(OutsideProposerTest, TheTimeLimitIsThatOfOneAnswer) {
  const ProposerPeer peer([&](const ProposerRequest& request) {
    if (request.step < 4) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    return propose_copies(request);
  });
  peer.use();
  const GenerationRecord record = decode_with({{"time_limit", .2}}).run();
  EXPECT_GE(record.steps.size(), 5u) << "the waits of all steps together are longer than the limit";
}

TEST_F(OutsideProposerTest, WithoutAProgram) {
  {
    const ProposerPeer peer(propose_copies);
    peer.use();
  }
  EXPECT_THAT(message_of([&] { decode_with().run(); }), HasSubstr("No such file or directory"));
  ::setenv("SPECLAB_PROPOSER", std::string(200, 'x').c_str(), 1);
  EXPECT_THAT(message_of([&] { decode_with().run(); }), HasSubstr("a path of 200 bytes"));
  ::unsetenv("SPECLAB_PROPOSER");
  EXPECT_THAT(message_of([&] { decode_with().run(); }), HasSubstr("speclab.measure_proposer"));
}

}  // namespace
}  // namespace speclab::outside_proposer_test
