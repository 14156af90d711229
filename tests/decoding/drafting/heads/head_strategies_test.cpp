#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/registry.h"

namespace speclab::head_strategies_test {
namespace {

std::vector<std::string> described_options(const char* strategy) {
  StrategyChoice choice(find_strategy(strategy));
  std::vector<std::string> out;
  for (const OptionInfo& option : describe_options(choice.fields()))
    out.push_back(option.name + ": " + option.type + " " + option.default_value + " " + option.help);
  return out;
}

// A config that compares heads varies only the strategy, so an option means the same for all of them.
TEST(HeadStrategies, HaveTheSameOptions) {
  const std::vector<std::string> options = described_options("medusa");
  EXPECT_GE(options.size(), 5u);
  EXPECT_EQ(options.front().substr(0, 10), "head: text");
  for (const char* name : {"hydra", "mlp_speculator"}) EXPECT_EQ(described_options(name), options) << name;
  for (const char* name : {"medusa", "hydra", "mlp_speculator"}) {
    const StrategyInfo& info = find_strategy(name).info;
    EXPECT_EQ(info.name, name);
    EXPECT_EQ(info.needs_file, "head") << name;
    EXPECT_EQ(info.verification, "tree") << name;
    EXPECT_TRUE(StrategyChoice(find_strategy(name)).needs_costs()) << name << ": the budget is automatic";
  }
}

}  // namespace
}  // namespace speclab::head_strategies_test
