// Comparison of hand-made runs: texts, missing texts, workloads, times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/experiments/analysis/compare/compared_run.h"

namespace speclab::compare_test {
namespace {

using fixtures::made_run;
using fixtures::MadeCase;
using fixtures::without_lines;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Compare, TimesOfTheSameTexts) {
  const ComparedRun base = made_run({{}}), slow = made_run({{.ms = 12.5}}), near = made_run({{.ms = 10.05}});
  const Comparison slower = compare_runs(base, slow);
  EXPECT_EQ(slower.cases[0].verdict, "slower");
  EXPECT_NEAR(slower.cases[0].ratio, .8, 1e-6);
  EXPECT_NEAR(*slower.floors.times, .02, 1e-6) << "only the repeats of both runs count";
  EXPECT_THAT(slower.cases[0].failures, ElementsAre(Failure::slower));
  EXPECT_TRUE(slower.failed());
  EXPECT_EQ(compare_runs(slow, base).cases[0].verdict, "faster");
  EXPECT_FALSE(compare_runs(slow, base).failed());
  EXPECT_EQ(compare_runs(base, near).cases[0].verdict, "same");
}

TEST(Compare, NoVerdictOnTimeWithoutRepeats) {
  const ComparedRun base = made_run({{.repeats = {1}}}), slow = made_run({{.ms = 12.5, .repeats = {1}}}),
                    repeated = made_run({{.ms = 12.5}});
  for (const auto& [one, other] :
       {std::pair(&base, &slow), std::pair(&base, &repeated), std::pair(&repeated, &base)}) {
    const Comparison comparison = compare_runs(*one, *other);
    EXPECT_EQ(comparison.cases[0].verdict, "unclear: no repeats");
    EXPECT_FALSE(comparison.floors.times.has_value());
    EXPECT_FALSE(comparison.failed());
  }
  EXPECT_NEAR(compare_runs(base, slow).cases[0].ratio, .8, 1e-6) << "the ratio is still reported";
}

TEST(Compare, NoVerdictOnTimeOfABusyMachine) {
  const ComparedRun base = made_run({{}});
  ComparedRun slow = made_run({{.ms = 12.5}});
  slow.summary["machine"] = {{"busy", true}};
  EXPECT_EQ(compare_runs(base, slow).cases[0].verdict, "unclear: busy machine");
  EXPECT_EQ(compare_runs(slow, base).cases[0].verdict, "unclear: busy machine");
  EXPECT_FALSE(compare_runs(base, slow).failed());
  EXPECT_EQ(compare_runs(base, slow).new_machine["busy"], true);
}

TEST(Compare, TimesArePerTokenWhereTextsDiffer) {
  const ComparedRun base = made_run({{}}), half = made_run({{.tokens = 3, .ms = 5}});
  const Comparison comparison = compare_runs(base, half, {.allow_changed_text = true});
  EXPECT_NEAR(comparison.cases[0].ratio, 1, 1e-6);
  EXPECT_EQ(comparison.cases[0].verdict, "same");
  EXPECT_FALSE(comparison.failed());
}

TEST(Compare, AChangedTextFailsUnlessItIsAllowed) {
  const ComparedRun base = made_run({{}, {.id = "lossy", .loss_class = "L3"}}),
                    fresh = made_run({{}, {.id = "lossy", .loss_class = "L3", .other_text = "2"}});
  const Comparison comparison = compare_runs(base, fresh);
  EXPECT_THAT(comparison.cases[0].failures, IsEmpty());
  const CaseComparison& changed = comparison.cases[1];
  EXPECT_THAT(changed.failures, ElementsAre(Failure::changed_text))
      << "coins have addresses: lossy texts repeat too";
  EXPECT_EQ(changed.texts.compared, 3u);
  EXPECT_EQ(changed.texts.changed, 1u);
  EXPECT_EQ(changed.texts.prompt, "2");
  EXPECT_EQ(changed.texts.index, 3u);
  EXPECT_FALSE(compare_runs(base, fresh, {.allow_changed_text = true}).failed());
  const Comparison shorter =
      compare_runs(base, made_run({{.tokens = 5}, {.id = "lossy", .loss_class = "L3"}}));
  EXPECT_EQ(shorter.cases[0].texts.changed, 3u) << "a prefix is not equal";
  EXPECT_EQ(shorter.cases[0].texts.index, 6u);
}

TEST(Compare, MissingCasesAndTextsFailUnlessTheyAreAllowed) {
  const ComparedRun base = made_run({{}, {.id = "b"}});
  const Comparison no_case = compare_runs(base, made_run({{}, {.id = "c"}}));
  EXPECT_THAT(no_case.cases[1].failures, ElementsAre(Failure::missing));
  EXPECT_EQ(no_case.cases[1].verdict, "missing");
  EXPECT_EQ(no_case.cases[2].verdict, "only in new");
  EXPECT_FALSE(compare_runs(base, made_run({{}}), {.allow_missing = true}).failed());
  const ComparedRun interrupted = made_run({{}, {.id = "b", .prompts = {"1", "2"}}});
  const Comparison no_text = compare_runs(base, interrupted);
  EXPECT_EQ(no_text.cases[1].missing_texts, 1u);
  EXPECT_THAT(no_text.cases[1].failures, ElementsAre(Failure::missing));
  EXPECT_FALSE(compare_runs(base, interrupted, {.allow_missing = true}).failed());
  EXPECT_FALSE(compare_runs(interrupted, base).failed()) << "more than the base had is no failure";
}

TEST(Compare, NothingComparedIsAFailure) {
  const ComparedRun run = made_run({{}}), committed = without_lines(run);
  const Comparison comparison = compare_runs(committed, run);
  EXPECT_EQ(comparison.cases[0].verdict, "not compared: BASE has no raw lines");
  EXPECT_THAT(comparison.cases[0].failures, ElementsAre(Failure::not_compared));
  EXPECT_THAT(comparison.nothing_compared, HasSubstr("BASE has no raw lines"));
  EXPECT_THAT(compare_runs(run, committed).nothing_compared, HasSubstr("NEW has no raw lines"));
  EXPECT_THAT(compare_runs(run, committed).cases[0].failures, ElementsAre(Failure::not_compared));
  EXPECT_FALSE(compare_runs(committed, run, {.allow_uncompared = true}).failed());
}

/// The text of the Error that compare_runs throws; "" when it throws none.
std::string refusal(const ComparedRun& base, const ComparedRun& fresh, const CompareOptions& options = {}) {
  try {
    compare_runs(base, fresh, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Compare, OtherWorkloadsAreRefusedUnlessTheyAreAllowed) {
  const ComparedRun base = made_run({{}});
  EXPECT_THAT(refusal(base, made_run({{.prompts = {"1", "2"}}})), HasSubstr("prompts: 3, 2 (2 in common)"));
  EXPECT_THAT(refusal(base, made_run({{.max_tokens = 128}})), HasSubstr("max_tokens: 32, 128 (1 case)"));
  ComparedRun seeds = base, prompt = base, draft = base;
  seeds.run.config["seeds"] = {1, 2};
  EXPECT_THAT(refusal(base, seeds), HasSubstr("seeds: [1], [1,2]"));
  prompt.run.config["prompts"][0]["turns"] = {"another text"};
  EXPECT_THAT(refusal(base, prompt), HasSubstr("prompts: 3, 3 (2 in common)"));
  draft.run.config["system"] = "Be brief.";
  EXPECT_EQ(refusal(base, draft), "") << "a field that an older version did not write is not compared";
  const Comparison comparison =
      compare_runs(base, made_run({{.prompts = {"1", "2"}}}), {.allow_other_workload = true});
  EXPECT_EQ(comparison.cases[0].texts.compared, 2u);
  EXPECT_EQ(comparison.cases[0].missing_texts, 0u) << "the new run never planned the third";
  EXPECT_EQ(comparison.cases[0].verdict, "same");
  EXPECT_FALSE(comparison.failed());
  const Comparison none = compare_runs(base, made_run({{.prompts = {"7"}}}), {.allow_other_workload = true});
  EXPECT_THAT(none.cases[0].failures, ElementsAre(Failure::not_compared));
}

TEST(Compare, AnOptionThatAnOldRecordLacksHasTheValueThatItsAbsenceMeans) {
  const ComparedRun old = made_run({{}});
  const auto with_budget = [&](const char* rule) {
    ComparedRun run = old;
    run.run.config["cases"][0]["options"]["budget"] = rule;
    return run;
  };
  EXPECT_EQ(refusal(old, with_budget("fixed")), "");
  EXPECT_EQ(compare_runs(old, with_budget("fixed")).cases[0].verdict, "same");
  EXPECT_THAT(refusal(old, with_budget("auto")), HasSubstr("budget: \"fixed\", \"auto\" (1 case)"));
  EXPECT_THAT(refusal(with_budget("auto"), old), HasSubstr("budget: \"auto\", \"fixed\" (1 case)"));
  EXPECT_EQ(refusal(with_budget("auto"), with_budget("auto")), "");
}

TEST(Compare, InAnotherWorkloadOnlyTextsThatDraftsCannotChangeArePromised) {
  const auto changed = [](const std::string& loss_class, const std::string& coins, int max_tokens) {
    const MadeCase base{.loss_class = loss_class, .coins = coins};
    MadeCase fresh = base;
    fresh.prompts = {"1", "2"};
    fresh.other_text = "2";
    fresh.max_tokens = max_tokens;
    return compare_runs(made_run({base}), made_run({fresh}), {.allow_other_workload = true})
        .cases[0]
        .texts.promised;
  };
  EXPECT_TRUE(changed("L2", "independent", 32));
  EXPECT_TRUE(changed("L1", "gumbel", 32));
  EXPECT_FALSE(changed("L1", "independent", 32));
  EXPECT_FALSE(changed("L3", "gumbel", 32));
  EXPECT_FALSE(changed("L2", "independent", 64)) << "a case with other options is another case";
}

TEST(Compare, OtherMachinesAndModelsAreRefused) {
  const ComparedRun base = made_run({{}});
  ComparedRun model = base, machine = base, numerics = base, cache = base, larger_cache = base;
  model.run.environment["models"]["target"]["sha256"] = "2";
  machine.run.environment["cpu"]["model"] = "another";
  numerics.run.environment["numerics"] = "avx512-bf16";
  EXPECT_THAT(refusal(base, model), HasSubstr("model target"));
  EXPECT_THAT(refusal(base, machine), HasSubstr("cpu/model"));
  EXPECT_THAT(refusal(base, machine), HasSubstr("--gate"));
  cache.run.environment["cpu"]["cache"]["L3_bytes"] = 1000;
  larger_cache.run.environment["cpu"]["cache"]["L3_bytes"] = 2000;
  EXPECT_THAT(refusal(cache, larger_cache), HasSubstr("cpu/cache/L3_bytes: 1000, 2000"));
  EXPECT_EQ(refusal(base, cache), "") << "an older record does not say how large the cache is";
  const CompareOptions gates{.gates = {"tau"}};
  EXPECT_EQ(refusal(base, machine, gates), "") << "counts do not depend on the processor";
  EXPECT_EQ(refusal(cache, larger_cache, gates), "");
  EXPECT_THAT(refusal(base, numerics, gates), HasSubstr("numerics"));
  EXPECT_THAT(refusal(base, model, gates), HasSubstr("model target"));
  EXPECT_THAT(refusal(base, made_run({{.id = "other"}})), HasSubstr("no case that both runs have"));
}

TEST(Compare, FailedLinesAndLostEqualityFail) {
  const ComparedRun base = made_run({{}});
  ComparedRun failed = made_run({{}}), unequal = made_run({{}});
  failed.run.cases[0]->errors.emplace_back("1", "NaN logits");
  EXPECT_THAT(compare_runs(base, failed).cases[0].failures, ElementsAre(Failure::failed));
  auto lines = std::make_shared<PromptLines>(*unequal.run.cases[0]->lines[0]);
  lines->front().front().matches_reference = false;
  unequal.run.cases[0]->lines[0] = lines;
  EXPECT_EQ(compare_runs(base, unequal).cases[0].verdict, "lost equality");
  EXPECT_THAT(compare_runs(base, unequal).cases[0].failures, ElementsAre(Failure::lost_equality));
  EXPECT_FALSE(compare_runs(unequal, unequal).failed());
}

}  // namespace
}  // namespace speclab::compare_test
