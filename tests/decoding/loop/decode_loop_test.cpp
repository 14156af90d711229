#include "core/decoding/loop/decode_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::decode_loop_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DecodeLoopTest : public ::testing::Test {
 protected:
  ModelPtr target = tiny_target();
  ModelPtr skip = Model::with_layers(target, {0});

  // Greedy text by the simplest way: prefilling the whole text again for each token.
  std::vector<Token> stupid_greedy(std::vector<Token> text, int count) const {
    std::vector<Token> out;
    std::vector<float> logits(static_cast<std::size_t>(target->config().vocab));
    const auto session = target->open(256);
    while (static_cast<int>(out.size()) < count) {
      session->rewind(0);
      session->prefill(text, logits.data());
      const auto best = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      out.push_back(best);
      text.push_back(best);
    }
    return out;
  }

  std::string error_of(const Decode& decode) const {
    try {
      decode.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

// Loops that share prefills decode the same text as those that do not, and record time and work of the
// prefill, whichever loop ran it.
TEST_F(DecodeLoopTest, SharedPrefillsChangeNothingButTheTime) {
  const auto prefills = std::make_shared<PrefillCache>();
  const std::vector<std::vector<Token>> prompts{{1, 2, 3}, {1, 2, 3}, {4, 5, 6, 7, 8, 9, 10}, {1, 2, 3}};
  const StrategyChoice speculation = choose("speculative_sampling", {{"gamma", 3}});
  LoopOptions plain{.capacity = 256}, shared{.capacity = 256, .prefills = prefills};
  LoopOptions prefixes = shared;
  prefixes.verify = VerifyWith::batch_of_prefixes;
  DecodeLoop alone(target, skip, speculation, plain);
  DecodeLoop first(target, nullptr, choose("autoregressive"), shared),
      second(target, skip, speculation, shared), third(target, skip, speculation, prefixes);
  for (const std::vector<Token>& prompt : prompts) {
    const Decode decode{.target = target, .options = {{"max_tokens", 12}}, .prompt = prompt};
    const Request request = decode.request();
    const GenerationRecord expected = alone.run(request), a = first.run(request), b = second.run(request),
                           c = third.run(request);
    EXPECT_GT(a.prefill_ns, 0);
    for (const GenerationRecord* record : {&a, &b, &c}) {
      EXPECT_EQ(record->tokens, expected.tokens);
      EXPECT_EQ(record->row_hashes, expected.row_hashes);
      EXPECT_EQ(record->target_prefill.rows, expected.target_prefill.rows);
      EXPECT_EQ(record->target_prefill.flops, expected.target_prefill.flops);
    }
    EXPECT_EQ(b.target.rows, expected.target.rows);
  }
  // The same prompt is not prefilled again. Another prompt replaces it in its own turn only.
  const std::int64_t rows = prefills->prefill(*target, prompts.back(), 0, 256).session->work().rows;
  prefills->prefill(*target, prompts[2], 1, 256);
  EXPECT_EQ(prefills->prefill(*target, prompts.back(), 0, 256).session->work().rows, rows);
  EXPECT_EQ(prefills->prefill(*target, prompts[2], 0, 256).session->work().rows, rows + 7);
}

TEST_F(DecodeLoopTest, AutoregressiveEqualsPrefillingAgainForEachToken) {
  const GenerationRecord record = Decode{.target = target, .options = {{"max_tokens", 24}}}.run();
  EXPECT_EQ(record.tokens, stupid_greedy({1, 2, 3}, 24));
  EXPECT_EQ(record.context_length, 3);
  EXPECT_EQ(record.finish, Finish::length);
  ASSERT_EQ(record.steps.size(), 23u);  // the token from prefill is not a step
  EXPECT_EQ(record.row_hashes.size(), 24u);
  for (const StepRecord& step : record.steps) {
    EXPECT_EQ(step.emitted, 1);
    EXPECT_EQ(step.accepted, 0);
    EXPECT_EQ(step.rows, 1);
    EXPECT_EQ(step.ended_by, EndedBy::none);
    EXPECT_EQ(step.source, "");
  }
  EXPECT_EQ(record.target_prefill.rows, 3);
  EXPECT_EQ(record.target.calls, 23);
  EXPECT_EQ(record.target.rows, 23);
  EXPECT_EQ(record.draft.calls, 0);
}

TEST_F(DecodeLoopTest, PromptsOfOneToken) {
  const GenerationRecord plain =
      Decode{.target = target, .options = {{"max_tokens", 20}}, .prompt = {5}}.run();
  EXPECT_EQ(plain.tokens, stupid_greedy({5}, 20));
  const GenerationRecord fast = Decode{.target = target,
                                       .draft = skip,
                                       .strategy = choose("speculative_sampling"),
                                       .options = {{"max_tokens", 20}},
                                       .prompt = {5}}
                                    .run();
  EXPECT_EQ(fast.tokens, plain.tokens);
  EXPECT_EQ(fast.row_hashes, plain.row_hashes);
}

TEST_F(DecodeLoopTest, TimesAndCountsAddUp) {
  const GenerationRecord record = Decode{
      .target = target,
      .draft = skip,
      .strategy = choose("speculative_sampling", {{"gamma", 3}}),
      .options = {{"max_tokens", 40}}}.run();
  std::int64_t time = 0;
  int rows = 0, calls = 0;
  for (const StepRecord& step : record.steps) {
    time += step.times.total();
    rows += step.rows;
    calls += step.draft_calls;
    for (const std::int64_t ns : step.times.ns) EXPECT_GE(ns, 0);
    EXPECT_GT(step.times[Phase::target], 0);
    EXPECT_EQ(step.rows, static_cast<int>(step.drafted.size()) + 1);
    EXPECT_EQ(step.emitted, step.accepted + 1);
    EXPECT_EQ(step.draft_calls, static_cast<int>(step.drafted.size()));
  }
  EXPECT_EQ(time, record.decode_ns);
  EXPECT_EQ(rows, record.target.rows);
  EXPECT_EQ(static_cast<std::int64_t>(record.steps.size()), record.target.calls);
  EXPECT_EQ(calls, record.draft.calls);
  EXPECT_EQ(record.draft_prefill.rows, 3);
  EXPECT_EQ(total(record, &StepRecord::emitted), 39);
  EXPECT_GT(record.prefill_ns, 0);
  EXPECT_GT(record.draft_prefill_ns, 0);
  EXPECT_EQ(record.observe_prompt_ns, 0) << "the strategy reads no hidden states";
  EXPECT_GT(record.cpu_ns, 0);
}

TEST_F(DecodeLoopTest, RecordsWhatTheRuleSaw) {
  const GenerationRecord record = Decode{
      .target = target,
      .draft = skip,
      .strategy = choose("speculative_sampling", {{"gamma", 3}}),
      .options = {{"max_tokens", 60},
                  {"temperature", 1}}}.run();
  bool rejected = false, accepted = false;
  for (const StepRecord& step : record.steps) {
    bool reached = true;
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      const DraftedToken& token = step.drafted[i];
      EXPECT_EQ(token.parent, static_cast<int>(i));
      EXPECT_EQ(token.tested, reached);
      EXPECT_EQ(token.accepted, static_cast<int>(i) < step.accepted);
      EXPECT_GE(token.confidence, 0);
      EXPECT_EQ(token.rank >= 0, token.tested);
      if (token.tested) {
        EXPECT_NEAR(token.q, token.confidence, 1e-6);
        EXPECT_GE(token.p, 0);
        EXPECT_GE(token.expected, 0);
        EXPECT_LE(token.expected, 1 + 1e-12);
        EXPECT_TRUE(token.accepted || token.p < token.q);
      } else {
        EXPECT_EQ(token.p, -1);
      }
      reached = reached && token.accepted;
      (token.accepted ? accepted : rejected) = true;
    }
    if (step.drafted.empty()) continue;  // no room left
    EXPECT_EQ(step.ended_by,
              step.accepted < static_cast<int>(step.drafted.size()) ? EndedBy::rejection : EndedBy::bonus);
    EXPECT_EQ(step.source, "draft");
  }
  EXPECT_TRUE(rejected && accepted);
}

TEST_F(DecodeLoopTest, EndTokenInsideADraftCutsIt) {
  const std::vector<Token> text = stupid_greedy({1, 2, 3}, 12);
  // The draft is the target, so all tokens are accepted. The end token is in the middle of the first draft.
  const Token eos = text[3];
  ASSERT_EQ(std::find(text.begin(), text.begin() + 3, eos), text.begin() + 3);
  const GenerationRecord record = Decode{
      .target = target,
      .draft = target,
      .strategy = choose("speculative_sampling", {{"gamma", 8}}),
      .options = {{"max_tokens", 40}},
      .eos = {eos}}.run();
  EXPECT_THAT(record.tokens, ElementsAre(text[0], text[1], text[2], text[3]));
  EXPECT_EQ(record.row_hashes.size(), 4u);
  EXPECT_EQ(record.finish, Finish::eos);
  ASSERT_EQ(record.steps.size(), 1u);
  const StepRecord& step = record.steps[0];
  EXPECT_EQ(step.ended_by, EndedBy::eos);
  EXPECT_EQ(step.accepted, 3);
  EXPECT_EQ(step.emitted, 3);
  ASSERT_EQ(step.drafted.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(step.drafted[i].tested, i < 3);  // statistics end at the cut
    EXPECT_EQ(step.drafted[i].accepted, i < 3);
  }
}

TEST_F(DecodeLoopTest, EndTokenAsCorrectionIsARejection) {
  Decode decode{.target = target,
                .draft = skip,
                .strategy = choose("speculative_sampling", {{"gamma", 4}}),
                .options = {{"max_tokens", 60}}};
  const GenerationRecord open = decode.run();
  // A token that is a correction and does not occur before.
  std::size_t at = 1;
  for (const StepRecord& step : open.steps) {
    at += static_cast<std::size_t>(step.emitted);
    const Token last = open.tokens[at - 1];
    if (step.ended_by != EndedBy::rejection ||
        std::find(open.tokens.begin(), open.tokens.begin() + static_cast<std::ptrdiff_t>(at) - 1, last) !=
            open.tokens.begin() + static_cast<std::ptrdiff_t>(at) - 1)
      continue;
    decode.eos = {last};
    const GenerationRecord cut = decode.run();
    EXPECT_EQ(cut.finish, Finish::eos);
    EXPECT_EQ(cut.tokens.size(), at);
    EXPECT_EQ(cut.steps.back().ended_by, EndedBy::rejection);
    EXPECT_EQ(cut.steps.back().emitted, step.emitted);
    decode.options["ignore_eos"] = true;
    EXPECT_EQ(decode.run().tokens, open.tokens);
    return;
  }
  FAIL() << "no correction token that is new";
}

TEST_F(DecodeLoopTest, MaxTokensIsExactForEveryGamma) {
  for (const int max_tokens : {1, 2, 3, 7, 10}) {
    for (const int gamma : {1, 4, 8}) {
      const GenerationRecord record = Decode{
          .target = target,
          .draft = target,
          .strategy = choose("speculative_sampling", {{"gamma", gamma}}),
          .options = {
              {"max_tokens", max_tokens}}}.run();
      EXPECT_EQ(record.tokens, stupid_greedy({1, 2, 3}, max_tokens)) << gamma;
      EXPECT_EQ(record.finish, Finish::length);
      EXPECT_EQ(total(record, &StepRecord::emitted), max_tokens - 1);
    }
  }
}

TEST_F(DecodeLoopTest, TheContextEndsTheTextAndShortensDrafts) {
  for (const int gamma : {1, 4, 30}) {
    Decode decode{.target = target,
                  .draft = target,
                  .strategy = choose("speculative_sampling", {{"gamma", gamma}}),
                  .options = {{"max_tokens", 100}},
                  .loop = {.capacity = 16}};
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, stupid_greedy({1, 2, 3}, 14)) << gamma;  // position 16 is emitted but never fed
    EXPECT_EQ(record.finish, Finish::context);
    decode.strategy = choose("autoregressive");
    EXPECT_EQ(decode.run().tokens, record.tokens);
  }
}

TEST_F(DecodeLoopTest, StopStringsAcrossTokens) {
  const std::vector<Token> text = stupid_greedy({1, 2, 3}, 30);
  const auto bytes = [](Token token, std::string& out) { out += "<" + std::to_string(token) + ">"; };
  // The stop string ends in the middle of the second of two tokens.
  const std::string stop = std::to_string(text[4]) + "><" + std::to_string(text[5]);
  for (const char* strategy : {"autoregressive", "speculative_sampling"}) {
    const GenerationRecord record = Decode{
        .target = target,
        .draft = target,
        .strategy = choose(strategy),
        .options = {{"max_tokens", 30}, {"stop", {"never", stop}}},
        .loop = {.token_bytes = bytes}}.run();
    EXPECT_EQ(record.tokens, std::vector<Token>(text.begin(), text.begin() + 6)) << strategy;
    EXPECT_EQ(record.finish, Finish::stop);
  }
  EXPECT_THAT(error_of({.target = target, .options = {{"stop", {"x"}}}}), HasSubstr("tokenizer"));
}

TEST_F(DecodeLoopTest, ProcessorsSeeEveryDraftedPrefix) {
  const std::vector<Token> plain = stupid_greedy({1, 2, 3}, 40);
  for (const json& extra : {json{{"repetition_penalty", 1.8}}, json{{"banned_tokens", {plain[1], plain[5]}}},
                            json{{"min_length", 30}}}) {
    json options = {{"max_tokens", 40}};
    options.update(extra);
    Decode decode{.target = target, .options = options};
    if (extra.contains("min_length")) decode.eos = {plain[2]};
    const GenerationRecord expected = decode.run();
    EXPECT_NE(expected.tokens, plain);
    EXPECT_GE(expected.tokens.size(), 30u);
    decode.draft = target;
    for (const int gamma : {1, 3, 8}) {
      decode.strategy = choose("speculative_sampling", {{"gamma", gamma}});
      const GenerationRecord record = decode.run();
      EXPECT_EQ(record.tokens, expected.tokens) << extra << gamma;
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
      for (const StepRecord& step : record.steps)
        EXPECT_NE(step.ended_by, EndedBy::rejection);  // the draft applies them too
    }
  }
}

TEST_F(DecodeLoopTest, MinimumLengthHoldsTheEndTokenBack) {
  const std::vector<Token> plain = stupid_greedy({1, 2, 3}, 10);
  Decode decode{.target = target, .options = {{"max_tokens", 10}, {"min_length", 5}}, .eos = {plain[1]}};
  const GenerationRecord record = decode.run();
  EXPECT_GE(record.tokens.size(), 5u);
  EXPECT_EQ(std::count(record.tokens.begin(), record.tokens.begin() + 5, plain[1]), 0);
  decode.options["min_length"] = 0;
  EXPECT_EQ(decode.run().tokens.size(), 2u);
}

TEST_F(DecodeLoopTest, ABatchEqualsItsSequencesOneByOne) {
  const std::vector<std::vector<Token>> prompts{{1, 2, 3}, {9}, {4, 4, 4, 4, 4, 4, 8}, {60, 2}};
  for (const char* strategy : {"autoregressive", "speculative_sampling"}) {
    for (const double temperature : {0., 1.}) {
      std::vector<Request> requests;
      std::vector<GenerationRecord> alone;
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        Decode decode{.target = target,
                      .draft = skip,
                      .strategy = choose(strategy),
                      .prompt = prompts[i],
                      .coins = Coins(5, i)};
        decode.options = {{"max_tokens", 10 + 7 * static_cast<int>(i)}, {"temperature", temperature}};
        alone.push_back(decode.run());
        requests.push_back(decode.request());
        requests.back().prompt = prompts[i];
      }
      DecodeLoop loop(target, skip, choose(strategy), {.batch = 4, .capacity = 256});
      const std::vector<GenerationRecord> together = loop.run(requests);
      ASSERT_EQ(together.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i].tokens, alone[i].tokens) << strategy << i;
        EXPECT_EQ(together[i].row_hashes, alone[i].row_hashes);
        EXPECT_EQ(together[i].steps.size(), alone[i].steps.size());
        EXPECT_EQ(together[i].target.rows, alone[i].target.rows);
        EXPECT_EQ(together[i].draft.rows, alone[i].draft.rows);
      }
    }
  }
}

TEST_F(DecodeLoopTest, ABatchOfSequencesGivesTheSame) {
  for (const char* name : {"speculative_sampling", "prompt_lookup"}) {
    for (const double temperature : {0., 1.}) {
      StrategyChoice strategy =
          std::string(name) == "prompt_lookup"
              ? choose(name, {{"fallback", "draft"}, {"merge", "tree"}, {"gamma", 3}, {"length", 4}})
              : choose(name, {{"gamma", 4}});
      Decode decode{.target = target,
                    .draft = skip,
                    .strategy = strategy,
                    .options = {{"max_tokens", 50}, {"temperature", temperature}}};
      const GenerationRecord one_pass = decode.run();
      std::int64_t rows = one_pass.target.rows;
      for (const VerifyWith verify : {VerifyWith::batch_of_leaves, VerifyWith::batch_of_prefixes}) {
        decode.loop.verify = verify;
        const GenerationRecord sequences = decode.run();
        SCOPED_TRACE(fmt::format("{} {} {}", name, temperature, to_string(verify)));
        EXPECT_EQ(sequences.tokens, one_pass.tokens);
        EXPECT_EQ(sequences.row_hashes, one_pass.row_hashes);
        ASSERT_EQ(sequences.steps.size(), one_pass.steps.size());
        for (std::size_t i = 0; i < one_pass.steps.size(); ++i) {
          EXPECT_EQ(sequences.steps[i].accepted, one_pass.steps[i].accepted);
          ASSERT_EQ(sequences.steps[i].drafted.size(), one_pass.steps[i].drafted.size());
          for (std::size_t j = 0; j < one_pass.steps[i].drafted.size(); ++j) {
            EXPECT_EQ(sequences.steps[i].drafted[j].p, one_pass.steps[i].drafted[j].p);
          }
        }
        const bool same_rows =
            verify == VerifyWith::batch_of_leaves && strategy.info().verification == "chain";
        if (same_rows) EXPECT_EQ(sequences.target.rows, rows);  // a chain has one leaf
        else EXPECT_GT(sequences.target.rows, rows);
        rows = sequences.target.rows;
      }
    }
  }
}

TEST_F(DecodeLoopTest, RowsBeyondTheScratchSpaceAreRefused) {
  const Decode decode{.target = target,
                      .draft = target,
                      .strategy = choose("speculative_sampling", {{"gamma", 20}}),
                      .loop = {.verify = VerifyWith::batch_of_prefixes, .scratch = 60}};
  EXPECT_THAT(
      error_of(decode),
      HasSubstr("got 231 rows to verify, expected at most 60 in flight. Draft less, or verify in one pass"));
}

TEST_F(DecodeLoopTest, CoupledTextIsTheAutoregressiveTextOfTheSeed) {
  const json options = {{"max_tokens", 60}, {"temperature", 1}, {"coins", "gumbel"}, {"top_k", 40}};
  std::vector<Token> other;
  for (const std::uint64_t seed : {1, 2, 3}) {
    Decode decode{.target = target, .options = options, .coins = Coins(seed, 0)};
    const GenerationRecord plain = decode.run();
    EXPECT_NE(plain.tokens, other);
    other = plain.tokens;
    decode.draft = skip;
    for (int gamma = 1; gamma <= 8; ++gamma) {
      decode.strategy = choose("speculative_sampling", {{"gamma", gamma}});
      const GenerationRecord record = decode.run();
      EXPECT_EQ(record.tokens, plain.tokens) << seed << gamma;
      EXPECT_GT(total(record, &StepRecord::accepted), 0);
    }
    decode.draft = target;                     // both use the same noise, so they always agree
    EXPECT_EQ(decode.run().steps.size(), 7u);  // 59 tokens, 9 per step
  }
}

TEST_F(DecodeLoopTest, CoinsAndRuleMustBelongTogether) {
  EXPECT_THAT(error_of({.target = target, .options = {{"coins", "gumbel"}, {"rule", "rejection"}}}),
              HasSubstr("coupled"));
  EXPECT_THAT(error_of({.target = target, .options = {{"rule", "coupled"}}}), HasSubstr("gumbel"));
  EXPECT_THAT(error_of({.target = target, .options = {{"lenience", .5}}}),
              HasSubstr("\"rejection\" does not read it"));
}

TEST_F(DecodeLoopTest, LossyRulesGetTheirDistance) {
  Decode decode{.target = target,
                .draft = skip,
                .strategy = choose("speculative_sampling"),
                .options = {{"max_tokens", 30}, {"temperature", 1}}};
  for (const StepRecord& step : decode.run().steps) {
    for (const DraftedToken& token : step.drafted) {
      EXPECT_EQ(token.distance, -1);
      EXPECT_EQ(token.kl, -1);
    }
  }
  decode.options["rule"] = "lenience";
  decode.options["lenience"] = .3;
  int measured = 0;
  for (const StepRecord& step : decode.run().steps) {
    for (const DraftedToken& token : step.drafted) {
      EXPECT_EQ(token.distance >= 0, token.tested);
      EXPECT_EQ(token.kl >= 0, token.tested);
      if (token.tested) {
        EXPECT_GE(token.kl + 1e-6, 2 * token.distance * token.distance) << "Pinsker's inequality";
      }
      measured += token.distance > .01 ? 1 : 0;
    }
  }
  EXPECT_GT(measured, 0);
}

// p and q are the same after every token. With min_block 2 the first drafted token is accepted untested, so
// the output law is q. The law of the next tokens is that of top_beta: q(a) + (1 - q(a)) p(a) for the best
// token a.
TEST_F(DecodeLoopTest, TheDistanceOfMinimumBlockDependsOnTheDepth) {
  const auto table = [](const std::vector<float>& row) {
    std::vector<float> rows;
    for (int i = 0; i < 4; ++i) rows.insert(rows.end(), row.begin(), row.end());
    return markov_table(4, rows);
  };
  const ModelPtr p = load_tiny(table({2, 0, 0, 0})), q = load_tiny(table({0, 2, 0, 0}), p);
  Decode decode{.target = p,
                .draft = q,
                .strategy = choose("speculative_sampling", {{"gamma", 3}, {"budget", "fixed"}}),
                .options = {{"max_tokens", 60},
                            {"temperature", 1},
                            {"rule", "minimum_block"},
                            {"min_block", 2},
                            {"beta", 1},
                            {"ignore_eos", true}},
                .prompt = {0}};
  const double sum = std::exp(2.) + 3, often = std::exp(2.) / sum, seldom = 1 / sum;
  const double untested = often - seldom;                            // TV(p, q)
  const double as_top_beta = seldom + (1 - seldom) * often - often;  // what the best token gains
  const double kl_untested = (often - seldom) * 2;  // KL(q || p), because log(often / seldom) = 2
  const double best = seldom + (1 - seldom) * often;
  const double kl_as_top_beta = best * std::log(best / often) + (1 - best) * std::log(1 - seldom);
  int first = 0, later = 0;
  for (const StepRecord& step : decode.run().steps) {
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      if (step.drafted[i].distance < 0) continue;
      EXPECT_NEAR(step.drafted[i].distance, i == 0 ? untested : as_top_beta, 1e-5);
      EXPECT_NEAR(step.drafted[i].kl, i == 0 ? kl_untested : kl_as_top_beta, 1e-5);
      ++(i == 0 ? first : later);
    }
  }
  EXPECT_GT(first, 0);
  EXPECT_GT(later, 0);
}

// At temperature 0 the target emits token 0 alone and the draft proposes token 1, which the rule accepts.
TEST_F(DecodeLoopTest, ALawThatEmitsAnImpossibleTokenHasAnInfiniteDivergence) {
  const auto table = [](const std::vector<float>& row) {
    std::vector<float> rows;
    for (int i = 0; i < 4; ++i) rows.insert(rows.end(), row.begin(), row.end());
    return markov_table(4, rows);
  };
  const ModelPtr p = load_tiny(table({2, 0, 0, 0})), q = load_tiny(table({0, 2, 0, 0}), p);
  const Decode decode{.target = p,
                      .draft = q,
                      .strategy = choose("speculative_sampling", {{"gamma", 3}, {"budget", "fixed"}}),
                      .options = {{"max_tokens", 20}, {"rule", "top_beta"}, {"beta", 4}},
                      .prompt = {0}};
  int tested = 0;
  for (const StepRecord& step : decode.run().steps) {
    for (const DraftedToken& token : step.drafted) {
      if (!token.tested) continue;
      ++tested;
      EXPECT_EQ(token.distance, 1);
      EXPECT_EQ(token.kl, std::numeric_limits<double>::infinity());
    }
  }
  EXPECT_GT(tested, 0);
}

TEST_F(DecodeLoopTest, NanLogitsAreAnErrorAndLeaveTheLoopUsable) {
  // 0 -> 1 -> 2 -> an infinite logit, a product of two finite weights (infinite ones are refused); 3 -> 3.
  TinyModel tiny = markov_table(4, {0, 9, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 9});
  const ModelPtr sane = load_tiny(tiny);
  tiny.tensors["token_embedding"].values[10] = tiny.tensors["head"].values[2] = 3e38f;
  const ModelPtr broken = load_tiny(tiny);
  for (const auto& [of_target, of_draft] : {std::pair{broken, sane}, std::pair{sane, broken}}) {
    DecodeLoop loop(of_target, of_draft, choose("speculative_sampling", {{"gamma", 3}}), {.capacity = 32});
    Decode bad{.target = of_target, .options = {{"max_tokens", 8}}, .prompt = {0}};
    Decode good{.target = of_target, .options = {{"max_tokens", 8}}, .prompt = {3}};
    EXPECT_EQ(loop.run(good.request()).tokens, std::vector<Token>(8, 3));
    EXPECT_THROW(loop.run(bad.request()), Error);
    EXPECT_EQ(loop.run(good.request()).tokens, std::vector<Token>(8, 3));
    EXPECT_EQ(loop.run(good.request()).steps.size(), 2u);
  }
}

TEST_F(DecodeLoopTest, CancellationKeepsWhatIsThere) {
  std::stop_source source;
  int calls = 0;
  LoopOptions options{.capacity = 256};
  options.on_emit = [&](int slot, const StepRecord&, TokenSpan emitted) {
    EXPECT_EQ(slot, 0);
    EXPECT_EQ(emitted.size(), 1u);
    if (++calls == 5) source.request_stop();
  };
  DecodeLoop loop(target, nullptr, choose("autoregressive"), options);
  const Decode decode{.target = target};
  const GenerationRecord record = loop.run(decode.request(), source.get_token());
  EXPECT_EQ(record.finish, Finish::cancelled);
  EXPECT_EQ(record.tokens, stupid_greedy({1, 2, 3}, 5));
  EXPECT_EQ(record.steps.size(), 4u);
  EXPECT_EQ(record.target.calls, 4);
}

TEST_F(DecodeLoopTest, BadPromptsAreRefused) {
  EXPECT_THAT(error_of({.target = target, .prompt = {}}), HasSubstr("no tokens"));
  EXPECT_THAT(error_of({.target = target, .prompt = std::vector<Token>(9, 1), .loop = {.capacity = 8}}),
              HasSubstr("got 9 tokens, expected at most 8"));
  EXPECT_THAT(error_of({.target = target, .prompt = {1, 64}}),
              HasSubstr("got token 64, expected ids from 0 to 63"));
}

TEST_F(DecodeLoopTest, ModelsThatDoNotFitAreRefused) {
  EXPECT_THAT(
      error_of({.target = target, .draft = random_markov(5, 1), .strategy = choose("speculative_sampling")}),
      HasSubstr("got a vocabulary of 5 tokens, expected the 64 tokens"));
  EXPECT_THAT(error_of({.target = target, .strategy = choose("speculative_sampling")}),
              HasSubstr("no draft model"));
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr reduced = load_tiny(random_llama(tiny_draft_shape(tiny.config), 2), target);
  EXPECT_THAT(error_of({.target = reduced}), HasSubstr("an output head for 32 of 64 tokens"));
}

TEST_F(DecodeLoopTest, DraftsDeeperThanTheLimitAreABug) {
  class TooDeep final : public Strategy {
   public:
    void begin(const Sequence&) override {}
    void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
      for (int i = 0; i <= sequences[0]->depth_limit; ++i) drafts[0]->add(1, i);
    }
  };
  const StrategyEntry entry = local_entry(
      [](const void*, const Resources&) -> std::unique_ptr<Strategy> { return std::make_unique<TooDeep>(); });
  EXPECT_THROW(
      (Decode{.target = target, .strategy = StrategyChoice(entry), .options = {{"max_tokens", 5}}}.run()),
      Bug);
}

}  // namespace
}  // namespace speclab::decode_loop_test
