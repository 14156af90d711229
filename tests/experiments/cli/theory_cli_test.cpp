// `speclab theory`: numbers that no record holds, and the costs of a model's forwards. `speclab audit`.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::theory_cli_test {
namespace {

using namespace speclab::fixtures;

class Theory : public Speclab {
 protected:
  json values(std::vector<std::string> words) {
    words.insert(words.begin(), "theory");
    words.push_back("--json");
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    json out = json::object();
    if (result.code != 0) return out;
    const json found = json::parse(result.out);
    for (const auto& [name, entry] : found.items()) out[name] = entry["value"];
    return out;
  }
};

TEST_F(Theory, ShowsTheBoundsForVerifiersOfGivenRows) {
  const std::vector<std::string> rows = {"--p", ".55,.25,.15,.05", "--q", ".4,.35,.05,.2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), rows.begin(), rows.end());
    return more;
  };
  const json found = values(with({"--k", "2", "--gamma", "2"}));
  EXPECT_NEAR(found["row_overlap"].get<double>(), .75, 1e-12);
  EXPECT_NEAR(found["best_alpha_iid"].get<double>(), .9475, 1e-12);
  EXPECT_NEAR(found["best_alpha_without_replacement"].get<double>(), .972756, 5e-7);
  EXPECT_NEAR(found["best_chain_tau"].get<double>(), 2.3675, 1e-12);
  EXPECT_NEAR(found["leviathan_eq_1"].get<double>(), 2.3125, 1e-12)
      << "the token rule, with alpha of the rows";
  EXPECT_NEAR(found["leviathan_limit"].get<double>(), 4, 1e-12);
  EXPECT_FALSE(values(rows).contains("best_chain_tau"));
  expect_error(run({"theory", "--p", ".5,.5"}), {"--p", "no --q"});
  expect_error(run({"theory", "--alpha", ".5", "--k", "2"}), {"--k", "no --p"});
  expect_error(run({"theory", "--p", "1", "--q", "1", "--alpha", ".5"}), {"--alpha and --p"});
  expect_error(run({"theory", "--p", ".5,.4", "--q", ".5,.5"}), {"--p", "the sum 0.9"});
  expect_error(run({"theory", "--p", "1", "--q", "1", "--k", "0"}), {"--k", "1 to 1000"});
}

TEST_F(Theory, ConvertsTheNumbersOfOtherReports) {
  const json found = values({"--alpha", ".62", "--gamma", "7", "--speedup", "2.6", "--utilization", ".378"});
  EXPECT_NEAR(found["implied_c"].get<double>(), -.001, 5e-4);
  EXPECT_NEAR(found["draft_utilization"].get<double>(), (found["leviathan_eq_1"].get<double>() - 1) / 7,
              1e-12);
  EXPECT_GT(found["implied_alpha_utilization"], .7);
  EXPECT_GT(found["tau_deviation"], 1);
  EXPECT_EQ(values({"--acceptance", ".9,.8,.1", "--c", ".1"})["optimal_gamma_positional"], 2);
  EXPECT_THAT(run({"theory", "--alpha", ".62", "--gamma", "7", "--speedup", "2.6"}).out,
              HasSubstr("above the bound for a free draft"));
  expect_error(run({"theory", "--utilization", ".4"}), {"--utilization", "no --gamma"});
  expect_error(run({"theory", "--utilization", "1.4", "--gamma", "3"}), {"--utilization", "1.4"});
  expect_error(run({"theory", "--utilization", ".4", "--gamma", "0"}), {"--gamma", "0"});
}

TEST_F(Theory, CostsOfAModel) {
  const json described = json::parse(run({"model", "target", "--json"}).out);
  const json plain = values({"--model", "target"});
  EXPECT_EQ(plain["model_ops_per_token"], described["flops_per_token"]);
  EXPECT_EQ(plain["model_kv_bytes_per_token"], described["kv_bytes_per_position"]);
  EXPECT_EQ(2 * plain["model_weights"].get<double>(), described["weight_bytes_per_forward"]);
  EXPECT_FALSE(plain.contains("leviathan_limit"));

  const std::vector<std::string> device = {"--model",      "target", "--draft",     "draft",
                                           "--context",    "100",    "--batch",     "2",
                                           "--peak-flops", "1e12",   "--bandwidth", "1e10"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = device;
    words.insert(words.end(), more.begin(), more.end());
    return values(words);
  };
  const json chain = with({"--rows", "6"}), tree = with({"--tree", "2,3"}),
             f32 = with({"--weight-bytes", "4"});
  EXPECT_EQ(chain["model_rows"], 12);
  EXPECT_EQ(tree["model_rows"], 12);
  EXPECT_LT(tree["model_ops"], chain["model_ops"]) << "nodes of a tree see fewer keys";
  EXPECT_GT(tree["model_commit_bytes"], 0);
  EXPECT_EQ(chain["model_ridge_rows"], 100);
  EXPECT_EQ(f32["model_ridge_rows"], 200);
  EXPECT_EQ(chain["model_c_hat"], 1) << "draft and target have the same shape";
  EXPECT_EQ(chain["model_c"], 1);
  EXPECT_GT(with({"--kv-bytes", "4"})["model_bytes"], with({})["model_bytes"]);
  EXPECT_GT(with({"--overhead", ".5"})["model_seconds"], .5);
  // c_hat of the models serves the formulas as --c-hat does.
  EXPECT_EQ(with({"--alpha", ".5", "--gamma", "2"})["leviathan_3_11_ops"],
            values({"--alpha", ".5", "--gamma", "2", "--c-hat", "1"})["leviathan_3_11_ops"]);
  EXPECT_NE(with({"--alpha", ".5", "--gamma", "2", "--c-hat", ".5"})["leviathan_3_11_ops"],
            with({"--alpha", ".5", "--gamma", "2"})["leviathan_3_11_ops"]);
}

TEST_F(Theory, OptionsOfAModelNeedTheirPartners) {
  expect_error(run({"theory", "--alpha", ".5", "--draft", "draft"}),
               {"--draft", "no --model", "Add --model"});
  expect_error(run({"theory", "--alpha", ".5", "--rows", "3"}), {"--rows", "no --model"});
  expect_error(run({"theory", "--model", "target", "--peak-flops", "1e12"}),
               {"--peak-flops", "no --bandwidth"});
  expect_error(run({"theory", "--model", "target", "--bandwidth", "1e12"}),
               {"--bandwidth", "no --peak-flops"});
  expect_error(run({"theory", "--model", "target", "--overhead", "1"}), {"--overhead", "no --peak-flops"});
  expect_error(run({"theory", "--model", "target", "--rows", "3", "--tree", "2"}), {"--tree and --rows"});
  expect_error(run({"theory", "--model", "target", "--rows", "0"}), {"--rows", "0"});
  expect_error(run({"theory", "--model", "target", "--batch", "0"}), {"--batch", "0"});
  expect_error(run({"theory", "--model", "target", "--context", "-1"}), {"--context", "-1"});
  expect_error(run({"theory", "--model", "target", "--tree", "2,1.5"}), {"--tree", "1.5"});
  expect_error(run({"theory", "--model", "target", "--weight-bytes", "0"}), {"--weight-bytes", "0"});
  expect_error(run({"theory", "--model", "a.json"}), {"a.json"});
  expect_error(run({"theory"}), {"--alpha, --model, or --p and --q"});
}

// A rule that is lossless passes with exit code 0; exit code 1 needs a faulty rule (verifier_audit_test.cpp).
TEST_F(Theory, AuditOfRules) {
  const Result text = run({"audit", "rejection", "block", "--gamma", "2", "--vocab", "3"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("2.3125"), HasSubstr("2.3675"), HasSubstr("exact")));
  EXPECT_THAT(text.out, Not(HasSubstr("WRONG")));

  const Result wrong = run({"audit", "typical", "--gamma", "1", "--vocab", "2"});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_THAT(wrong.out,
              AllOf(HasSubstr("WRONG"), HasSubstr("typical, chain 1: wrong after the history []")));

  const Result all = run({"audit", "--gamma", "1", "--vocab", "2", "--tables", "1", "--json"});
  EXPECT_EQ(all.code, 0) << all.err;
  const json found = json::parse(all.out);
  EXPECT_GE(found["rules"].size(), 12u);
  ASSERT_EQ(found["not_audited"].size(), 1u);
  EXPECT_EQ(found["not_audited"][0]["rule"], "coupled");
  for (const json& rule : found["rules"]) {
    EXPECT_EQ(rule["exact"], true);
    EXPECT_GT(rule["findings"].size(), 0u);
  }
  expect_error(run({"audit", "coupled"}), {"coupled", "cannot be enumerated"});
  expect_error(run({"audit", "blok"}), {"blok", "block"});
  expect_error(run({"audit", "--gamma", "9"}), {"--gamma", "9", "1 to 4"});
}

}  // namespace
}  // namespace speclab::theory_cli_test
