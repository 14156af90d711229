// Gates compare counts exactly, because counts repeat exactly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/experiments/analysis/compare/compared_run.h"

namespace speclab::gates_test {
namespace {

using fixtures::made_run;
using fixtures::without_lines;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Gates, NamesAreChecked) {
  EXPECT_THAT(parse_gates("rows,tau,rows"), ElementsAre("rows", "tau"));
  for (const char* text : {"", "tau,speed", "tau,,rows"}) {
    try {
      parse_gates(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tau, alpha, rows, calls"));
    }
  }
}

json gate_metrics(int tokens, double tau, const json& alpha, int rows, int calls, const json& draft_calls) {
  json out = {{"tokens", tokens}, {"tau", tau}, {"alpha", alpha}};
  out["target_rows"] = static_cast<double>(rows) / tokens;
  out["target_calls"] = static_cast<double>(calls) / tokens;
  out["draft_calls"] = draft_calls.is_null() ? json() : json(draft_calls.get<double>() / tokens);
  return out;
}

TEST(Gates, TotalsAndRatiosAreComparedExactly) {
  const json base = gate_metrics(1143, 1143. / 601, 542. / 1080, 3005, 601, 2404);
  const auto change = [&](const json& fresh, std::size_t which) {
    return compare_gates({"tau", "alpha", "rows", "calls"}, base, fresh)->at(which).change;
  };
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(change(base, i), "equal") << i;
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 602, 542. / 1080, 3005, 601, 2404), 0), "worse");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 600, 542. / 1080, 3005, 601, 2404), 0), "better");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 601, 541. / 1080, 3005, 601, 2404), 1), "worse");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 601, nullptr, 3005, 601, 2404), 1), "changed");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 601, 542. / 1080, 3006, 601, 2404), 2), "worse");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 601, 542. / 1080, 3005, 600, 2404), 3), "better");
  EXPECT_EQ(change(gate_metrics(1143, 1143. / 601, 542. / 1080, 3005, 601, 2405), 4), "worse");
  EXPECT_EQ(compare_gates({"rows"}, base, base)->at(0).base, 3005) << "a total, not a ratio";
  EXPECT_EQ(compare_gates({"rows"}, base, gate_metrics(2286, 1.9, .5, 6010, 1202, 4808))->at(0).change,
            "changed")
      << "twice the text, as many rows per token";
  json older = base;
  older.erase("draft_calls");
  EXPECT_FALSE(compare_gates({"calls"}, older, base).has_value());
  EXPECT_TRUE(compare_gates({"rows"}, older, base).has_value());
}

TEST(Gates, ACommittedRecordWithoutRawLinesGates) {
  const ComparedRun run = made_run({{}}), committed = without_lines(run);
  const CompareOptions gates{.gates = {"tau", "rows", "calls"}};
  const Comparison same = compare_runs(committed, run, gates);
  EXPECT_EQ(same.cases[0].verdict, "equal");
  EXPECT_FALSE(same.failed());
  EXPECT_EQ(same.nothing_compared, "");
  ComparedRun more = committed;
  more.summary["cases"][0]["metrics"]["target_rows"] = 19. / 18;
  EXPECT_EQ(compare_runs(more, run, gates).cases[0].gates[1].change, "better");
  const Comparison differs = compare_runs(committed, more, gates);
  EXPECT_EQ(differs.cases[0].verdict, "differs");
  EXPECT_THAT(differs.cases[0].failures, ElementsAre(Failure::gate));
  EXPECT_EQ(differs.cases[0].gates[1].metric, "target_rows");
  EXPECT_EQ(differs.cases[0].gates[1].base, 18);
  EXPECT_EQ(differs.cases[0].gates[1].fresh, 19);
  EXPECT_EQ(differs.cases[0].gates[1].change, "worse");
}

TEST(Gates, UseTheLinesThatBothHave) {
  const ComparedRun base = made_run({{}});
  ComparedRun slow = made_run({{.prompts = {"1", "2"}, .ms = 100}});
  slow.summary["cases"][0]["metrics"]["target_rows"] = 7;  // ignored, because both have raw lines
  const Comparison comparison =
      compare_runs(base, slow, {.gates = {"tau", "alpha", "rows", "calls"}, .allow_other_workload = true});
  EXPECT_EQ(comparison.cases[0].verdict, "equal") << "times do not count";
  EXPECT_EQ(comparison.cases[0].gates[2].base, 12) << "rows of the two common texts";
  EXPECT_EQ(comparison.cases[0].ratio, 0);
  EXPECT_FALSE(comparison.failed());
}

TEST(Gates, CasesWithoutTheMetricsAreNotCompared) {
  const CompareOptions gates{.gates = {"tau"}, .allow_other_workload = true};
  const ComparedRun committed = without_lines(made_run({{}}));
  const auto verdict = [&](const ComparedRun& fresh) {
    const Comparison comparison = compare_runs(committed, fresh, gates);
    EXPECT_THAT(comparison.cases[0].failures, ElementsAre(Failure::not_compared));
    return comparison.cases[0].verdict;
  };
  EXPECT_THAT(verdict(made_run({{.prompts = {"1", "2"}}})), HasSubstr("the workloads differ"));
  ComparedRun interrupted = made_run({{}}), older = committed, unknown = committed, failed = committed;
  interrupted.run.complete = false;
  EXPECT_THAT(verdict(interrupted), HasSubstr("NEW is not complete"));
  older.summary["cases"][0]["metrics"].erase("tau");
  EXPECT_THAT(verdict(older), HasSubstr("lacks a metric"));
  unknown.summary["cases"] = json::array();
  EXPECT_THAT(verdict(unknown), HasSubstr("not in the summary of NEW"));
  failed.summary["cases"][0]["errors"] = 1;
  EXPECT_THAT(verdict(failed), HasSubstr("errors in NEW"));
}

TEST(Gates, TextsAreStillComparedIfThereAreLines) {
  const Comparison comparison =
      compare_runs(made_run({{}}), made_run({{.other_text = "2"}}), {.gates = {"tau"}});
  EXPECT_THAT(comparison.cases[0].failures, ElementsAre(Failure::changed_text));
  EXPECT_EQ(comparison.cases[0].verdict, "equal");
}

}  // namespace
}  // namespace speclab::gates_test
