#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/options_json.h"
#include "core/measure/run_result.h"
#include "experiments/run/dry_run.h"
#include "tests/base/error_text.h"
#include "tests/decoding/drafting/small_controller.h"
#include "tests/model/files/model_files.h"

namespace speclab::controller_check_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two drafts of the same name and of different files.
const json kControllerModels = {{"target", {{"name", "large"}, {"sha256", "777777777777"}}},
                                {"first", {{"name", "small"}, {"sha256", "111111111111"}}},
                                {"second", {{"name", "small"}, {"sha256", "222222222222"}}}};

TEST(RequireController, EveryDraftMustBeTheOneThatItWasTrainedFor) {
  const fixtures::TempDir dir;
  json file = fixtures::small_controller("disco", .5);
  file["draft"] = {{"name", "small"}, {"sha256", "111111111111"}};
  const std::string path = (dir.path() / "disco.json").string();
  write_json_file(path, file);
  StrategyChoice strategy(find_strategy("speculative_sampling"));
  parse_options(strategy.fields(), {{"schedule", "disco"}, {"controller", path}}, "test");
  const auto message = [&](const std::vector<std::string>& drafts) {
    return fixtures::message_of([&] { require_controller(strategy, drafts, kControllerModels); });
  };
  EXPECT_EQ(message({"first"}), "no error");
  EXPECT_THAT(message({"second"}),
              AllOf(HasSubstr("another file of the draft small (SHA-256 111111111111...)"),
                    HasSubstr("SHA-256 222222222222...")));
  EXPECT_THAT(message({"first", "second"}), HasSubstr("SHA-256 222222222222..."));
  EXPECT_THAT(message({}), HasSubstr("expected a controller of the draft large")) << "the target drafts";

  parse_options(strategy.fields(), {{"schedule", "constant"}, {"controller", path}}, "test");
  EXPECT_EQ(message({"second"}), "no error") << "this schedule does not read the controller";
  parse_options(strategy.fields(), {{"schedule", "disco"}, {"controller", path + "x"}}, "test");
  EXPECT_THAT(message({"first"}), HasSubstr("disco.jsonx"));
}

}  // namespace
}  // namespace speclab::controller_check_test
