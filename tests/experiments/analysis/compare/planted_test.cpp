// Planted changes: each is found and attributed to its part. Comparisons of runs that differ by noise alone
// raise no alarm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "experiments/analysis/compare/suspects.h"
#include "tests/experiments/analysis/compare/noisy_run.h"
#include "tests/model/files/model_files.h"

namespace speclab::planted_test {
namespace {

using fixtures::kNoisyCase;
using fixtures::kSharedMachine;
using fixtures::noisy_run;
using fixtures::NoisyRun;
using fixtures::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A run and three A/A runs of it, and the comparison of the run with others.
class PlantedChange : public ::testing::Test {
 protected:
  static Comparison compare(const NoisyRun& fresh) {
    static const ComparedRun base = noisy_run({.seed = 1});
    static const std::vector<ComparedRun> aa = {noisy_run({.seed = 2}), noisy_run({.seed = 12}),
                                                noisy_run({.seed = 22})};
    return compare_runs(base, noisy_run(fresh), {}, aa);
  }

  /// Expects that the drafting case, and no other, is slower, and that this part explains the whole change.
  static void expect_loss(const NoisyRun& fresh, ChangePart planted, double log_ratio) {
    const Comparison comparison = compare(fresh);
    const CaseComparison &reference = comparison.cases[0], &entry = comparison.cases[1];
    EXPECT_THAT(reference.failures, IsEmpty()) << reference.verdict;
    EXPECT_EQ(entry.verdict, "slower") << entry.ratio;
    EXPECT_THAT(entry.failures, ElementsAre(Failure::slower));
    EXPECT_TRUE(entry.suspect);
    ASSERT_TRUE(entry.change);
    EXPECT_EQ(entry.change->largest_loss(), planted);
    for (const ChangePart part : kChangeParts) {
      const stats::Value& value = entry.change->part(part);
      ASSERT_TRUE(value.ci);
      EXPECT_NEAR(value.value, part == planted ? log_ratio : 0, .008) << to_string(part);
      if (part == planted) {
        EXPECT_LT(value.ci->hi, -.01) << to_string(part);
      }
    }
  }
};

TEST_F(PlantedChange, ASlowdownOfThreePerCentIsFoundInEachPart) {
  const double loss = -std::log(1.03);
  expect_loss({.seed = 3, .slow_draft = .03}, ChangePart::draft, loss);
  expect_loss({.seed = 4, .slow_target = .03}, ChangePart::verification, loss);
  expect_loss({.seed = 5, .slow_bookkeeping = .03}, ChangePart::overhead, loss);
}

TEST_F(PlantedChange, ALossOfTwoHundredthsOfAlphaIsFound) {
  // Eq. 1 of Leviathan et al. 2023 at gamma 4 falls by .037 in logarithms between alpha .70 and .68.
  const auto tokens = [](double alpha) { return (1 - std::pow(alpha, 5)) / (1 - alpha); };
  expect_loss({.seed = 6, .alpha = .68}, ChangePart::acceptance, std::log(tokens(.68) / tokens(.70)));
}

TEST_F(PlantedChange, AFasterReferenceIsNoRegression) {
  const Comparison comparison = compare({.seed = 7, .reference = .95});
  const CaseComparison& entry = comparison.cases[1];
  EXPECT_EQ(comparison.cases[0].verdict, "faster");
  EXPECT_FALSE(comparison.failed());
  EXPECT_LT(entry.change->whole.ci->hi, .97) << "the speedup fell";
  EXPECT_NEAR(entry.change->part(ChangePart::reference).value, std::log(.95), .008);
  EXPECT_THAT(entry.verdict + ": " + entry.note, HasSubstr("its reference is faster"));
  EXPECT_FALSE(entry.suspect);
}

TEST_F(PlantedChange, ASlowerMachineSlowsDownTheAutoregressiveCaseOnly) {
  const Comparison comparison = compare({.seed = 8, .slow_draft = .02, .slow_target = .08, .reference = 1.1});
  EXPECT_EQ(comparison.cases[0].verdict, "slower");
  EXPECT_LT(comparison.cases[1].change->own.ci->hi, .95);
  EXPECT_NE(comparison.cases[1].verdict, "slower");
  EXPECT_THAT(comparison.cases[1].failures, IsEmpty());
}

TEST_F(PlantedChange, TwentyComparisonsOfTheSameProgramRaiseNoAlarm) {
  for (std::uint64_t seed = 101; seed <= 120; ++seed) {
    const Comparison comparison = compare({.seed = seed});
    EXPECT_FALSE(comparison.failed()) << seed;
    EXPECT_NEAR(comparison.cases[1].change->whole.value, 1, .015) << seed;
  }
}

TEST_F(PlantedChange, TwentyComparisonsOnASharedMachineRaiseNoAlarmForAStrategy) {
  const NoisyRun made{.noise = kSharedMachine, .prompts = 14, .repeats = 2};
  const auto with_seed = [&](std::uint64_t seed) {
    NoisyRun one = made;
    one.seed = seed;
    return noisy_run(one);
  };
  const std::vector<ComparedRun> aa = {with_seed(200)};
  const ComparedRun base = with_seed(201);
  for (std::uint64_t seed = 301; seed <= 320; ++seed) {
    const CaseComparison entry = compare_runs(base, with_seed(seed), {}, aa).cases[1];
    EXPECT_THAT(entry.failures, IsEmpty()) << seed << ": " << entry.verdict;
  }
}

TEST_F(PlantedChange, WithoutAnAARunTheRepeatsGiveTheNoise) {
  const Comparison comparison =
      compare_runs(noisy_run({.seed = 1}), noisy_run({.seed = 9, .slow_target = .1}));
  EXPECT_EQ(comparison.floors.aa_runs, 0u);
  EXPECT_EQ(comparison.cases[1].verdict, "slower");
  const Comparison same = compare_runs(noisy_run({.seed = 1}), noisy_run({.seed = 9}));
  EXPECT_FALSE(same.failed());
}

/// The text of the Error that this A/A run causes; "" when it causes none.
std::string refusal_of(const ComparedRun& aa, const ComparedRun& base, const ComparedRun& fresh) {
  try {
    compare_runs(base, fresh, {}, {&aa, 1});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(PlantedChange, AnAARunNeedsTheBinaryOfOneOfTheRuns) {
  const ComparedRun base = noisy_run({.prompts = 3, .tokens = 12});
  ComparedRun fresh = noisy_run({.seed = 2, .prompts = 3, .tokens = 12, .slow_draft = 1}),
              aa_of_new = noisy_run({.seed = 3, .prompts = 3, .tokens = 12, .slow_draft = 1}),
              aa_of_base = noisy_run({.seed = 4, .prompts = 3, .tokens = 12}), other = aa_of_base;
  fresh.run.environment["binary_sha256"] = aa_of_new.run.environment["binary_sha256"] = "2";
  other.run.environment["binary_sha256"] = "3";
  for (const ComparedRun* aa : {&aa_of_base, &aa_of_new}) {
    const NoiseFloors floors = compare_runs(base, fresh, {}, {aa, 1}).floors;
    EXPECT_LT(*floors.times, .5) << "compared with the run of its binary; NEW takes twice the time of BASE";
    EXPECT_GT(*floors.times, 0);
    EXPECT_EQ(floors.aa_runs, 1u);
  }
  EXPECT_THAT(refusal_of(other, base, fresh), HasSubstr("another binary"));
  ComparedRun old_base = base, old_fresh = fresh, old_aa = aa_of_base;
  for (ComparedRun* old : {&old_base, &old_fresh, &old_aa}) old->run.environment.erase("binary_sha256");
  EXPECT_THAT(refusal_of(old_aa, old_base, old_fresh), HasSubstr("does not name its binary"));
}

TEST_F(PlantedChange, AnAARunIsASecondQuietRunOfTheSameWorkload) {
  const auto with_seed = [](std::uint64_t seed) {
    return noisy_run({.seed = seed, .prompts = 3, .tokens = 12});
  };
  const ComparedRun base = with_seed(1), fresh = with_seed(2), second = with_seed(3);
  EXPECT_EQ(refusal_of(second, base, fresh), "");
  EXPECT_THAT(refusal_of(base, base, fresh), HasSubstr("the lines of BASE itself"));
  EXPECT_THAT(refusal_of(fresh, base, fresh), HasSubstr("the lines of NEW itself"));
  ComparedRun busy = second, longer = second, alone = second;
  busy.summary["machine"] = {{"busy", true}};
  busy.folder = "runs/busy";
  EXPECT_THAT(refusal_of(busy, base, fresh), HasSubstr("--aa runs/busy: got a run on a busy machine"));
  longer.run.config["cases"][1]["options"]["max_tokens"] = 99;
  EXPECT_THAT(refusal_of(longer, base, fresh), HasSubstr("max_tokens: 13, 99 (1 case)"));
  EXPECT_THAT(refusal_of(noisy_run({.seed = 3, .prompts = 2, .tokens = 12}), base, fresh),
              HasSubstr("prompts: 3, 2 (2 in common)"));
  alone.run.cases.pop_back();
  EXPECT_THAT(refusal_of(alone, base, fresh), HasSubstr("no A/A run that has a case with its"));
  const std::vector<ComparedRun> both = {alone, with_seed(4)};
  EXPECT_TRUE(compare_runs(base, fresh, {}, both).floors.speedups.has_value());
}

TEST_F(PlantedChange, FloorsOfAnEarlierComparisonCountInsteadOfThose) {
  const NoiseFloors known{.times = .5, .speedups = .5, .aa_runs = 1};
  const ComparedRun base = noisy_run({.seed = 1}), slow = noisy_run({.seed = 2, .slow_draft = .3});
  EXPECT_EQ(compare_runs(base, slow).cases[1].verdict, "slower");
  const Comparison comparison = compare_runs(base, slow, {.floors = known});
  EXPECT_EQ(comparison.floors.times, known.times);
  EXPECT_EQ(comparison.cases[1].verdict, "same");
}

/// A comparison of one case with this verdict.
Comparison with_verdict(const std::string& verdict) {
  Comparison comparison;
  comparison.cases.emplace_back();
  CaseComparison& entry = comparison.cases.back();
  entry.id = kNoisyCase;
  entry.verdict = verdict;
  if (verdict == "slower") {
    entry.suspect = true;
    entry.failures = {Failure::slower};
  }
  return comparison;
}

TEST(Suspects, OnlyASecondVerdictOfSameOrFasterClearsACase) {
  for (const char* cleared : {"same", "faster"}) {
    Comparison comparison = with_verdict("slower");
    settle_suspects(comparison, with_verdict(cleared));
    EXPECT_EQ(comparison.cases[0].verdict, "unclear: not slower when measured again") << cleared;
    EXPECT_EQ(comparison.cases[0].again->verdict, cleared);
    EXPECT_FALSE(comparison.failed()) << cleared;
  }
  for (const char* kept :
       {"slower", "unclear", "unclear: busy machine", "unclear: no repeats", "unclear: one prompt",
        "unclear: its reference is faster", "not compared: NEW has no raw lines", "missing"}) {
    Comparison comparison = with_verdict("slower");
    settle_suspects(comparison, with_verdict(kept));
    EXPECT_EQ(comparison.cases[0].verdict, "slower") << kept;
    EXPECT_EQ(comparison.cases[0].again->verdict, kept);
    EXPECT_THAT(comparison.cases[0].failures, ElementsAre(Failure::slower)) << kept;
  }
}

TEST(Suspects, FailuresOfTheSecondMeasurementAreAdded) {
  Comparison comparison = with_verdict("slower"), again = with_verdict("same");
  again.cases[0].failures = {Failure::changed_text};
  settle_suspects(comparison, again);
  EXPECT_THAT(comparison.cases[0].failures, ElementsAre(Failure::changed_text));
}

TEST_F(PlantedChange, PairedStepsHaveAtMostAQuarterOfTheVariance) {
  for (const fixtures::MadeNoise noise : {fixtures::MadeNoise{}, kSharedMachine}) {
    const Comparison comparison = compare_runs(noisy_run({.seed = 1, .noise = noise}),
                                               noisy_run({.seed = 10, .noise = noise, .slow_target = .03}));
    const StepPairs& pairs = *comparison.cases[1].pairs;
    EXPECT_EQ(pairs.pairs, pairs.base_steps) << "equal texts and equal acceptance";
    EXPECT_EQ(pairs.pairs, pairs.new_steps);
    EXPECT_LE(*pairs.paired_variance, *pairs.unpaired_variance / 4);
  }
}

TEST_F(PlantedChange, StepsArePairedWhereTheyDidTheSameWork) {
  const CaseComparison entry = compare({.seed = 11, .alpha = .6, .slow_target = .03}).cases[1];
  EXPECT_GT(entry.pairs->pairs, entry.pairs->base_steps / 4);
  EXPECT_LT(entry.pairs->pairs, entry.pairs->base_steps);
  EXPECT_LT(entry.change->part(ChangePart::acceptance).ci->hi, -.1);
  EXPECT_NEAR(entry.pairs->ratio, 1 / 1.03, .015) << "the acceptance plays no part in it";
}

TEST_F(PlantedChange, ARunFolderGivesTheSameNumbers) {
  const TempDir folder;
  const ComparedRun base = noisy_run({.seed = 1, .prompts = 4, .repeats = 2, .tokens = 24}),
                    fresh =
                        noisy_run({.seed = 2, .prompts = 4, .repeats = 2, .tokens = 24, .slow_draft = .2});
  fixtures::write_noisy_run(base, folder.path() / "base");
  fixtures::write_noisy_run(fresh, folder.path() / "new");
  const Comparison made = compare_runs(base, fresh),
                   read = compare_runs(load_compared_run(folder.path() / "base"),
                                       load_compared_run(folder.path() / "new"));
  ASSERT_EQ(read.cases.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_DOUBLE_EQ(read.cases[i].change->whole.value, made.cases[i].change->whole.value);
    EXPECT_EQ(read.cases[i].pairs->pairs, made.cases[i].pairs->pairs);
  }
  EXPECT_EQ(read.cases[1].change->largest_loss(), ChangePart::draft);
}

}  // namespace
}  // namespace speclab::planted_test
