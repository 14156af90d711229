// The committed grid over W, N and G on devices whose times are known.
#include "experiments/simulate/lookahead_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/analysis/lookahead_fit.h"
#include "tests/experiments/simulate/priced_run.h"

namespace speclab::lookahead_prices_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LookaheadPrices : public PricedRun {
 protected:
  const std::filesystem::path record_ =
      std::filesystem::path(SPECLAB_SOURCE_DIR) / "results/baselines/lookahead-wng-epyc-avx512-2cores";
  /// Up to 128 rows take 100 microseconds; above, the time grows in proportion to the rows.
  static json free_rows() {
    return {{"name", "free"}, {"kind", "table"}, {"target_us", {{"1", 100}, {"128", 100}, {"256", 200}}}};
  }
};

TEST_F(LookaheadPrices, ARecordWithoutLinesIsPriced) {
  const json summary = read_json_file(record_ / "summary.json");
  const json simulation = lookahead_prices(record_, device(free_rows()));
  EXPECT_EQ(simulation["simulation"], true);
  ASSERT_EQ(simulation["fits"].size(), 1u);
  const json &fit = simulation["fits"][0], &cells = fit["cells"];
  ASSERT_EQ(cells.size(), summary["lookahead"][0]["cells"].size());
  // All its cells feed at most 128 rows, so a step costs a forward of one row and the host's time for the
  // pool.
  for (const json& cell : cells) {
    const json draft = summary["calibration"]["cases"][cell["case"].get<std::string>()]["draft_ns"];
    double drafted = 0;
    for (const json& entry : summary["cases"]) {
      if (entry["id"] == cell["case"]) drafted = entry["metrics"]["drafted_per_step"];
    }
    ASSERT_LE(cell["rows"].get<double>(), 128);
    const double host = draft["constant"].get<double>() + drafted * draft["slope"].get<double>();
    EXPECT_GT(host, 0);
    EXPECT_NEAR(cell["speedup"].get<double>(), cell["tau"].get<double>() * 1e5 / (1e5 + host), 1e-9);
  }
  const json machine = lookahead_machine("free", summary["lookahead"][0], free_row_times(128));
  EXPECT_EQ(fit["machine"]["best"]["W"], machine["best"]["W"]);
  EXPECT_EQ(fit["machine"]["best"]["N"], machine["best"]["N"]);
  EXPECT_NEAR(fit["machine"]["best"]["speedup"].get<double>(), machine["best"]["speedup"].get<double>(),
              1e-9);
  EXPECT_THAT(lookahead_prices_text(simulation),
              AllOf(HasSubstr("Simulated on free"), HasSubstr("simulated speedup"), HasSubstr("W = ")));
}

TEST_F(LookaheadPrices, AMachineWithoutFreeRowsRecommendsNoLookahead) {
  json file = free_rows();
  file["target_us"] = {{"1", 100}, {"2", 200}, {"256", 25600}};
  const json simulation = lookahead_prices(record_, device(file));
  EXPECT_EQ(simulation["fits"][0]["machine"]["best"]["W"], 0);
  for (const json& cell : simulation["fits"][0]["cells"]) EXPECT_LT(cell["speedup"].get<double>(), 1);
}

TEST_F(LookaheadPrices, ARunWithoutAGridIsRefused) {
  EXPECT_THROW(lookahead_prices(calibrated_run("run", 1'600'000, 1e6), device(free_rows())), Error);
}

}  // namespace
}  // namespace speclab::lookahead_prices_test
