#include "core/decoding/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/options_json.h"

namespace speclab::registry_test {
namespace {

struct OneNumber {
  int number = 1;
  void fields(OptionVisitor& visit) { visit("number", number, Range<int>{0, 9}, ""); }
};

/// Drafts nothing. Other tests of this program find the entries in the registry and decode with them.
struct NoDraft final : Strategy {
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const>, std::span<Draft* const>) override {}
};

StrategyEntry entry_of(std::string_view name) {
  StrategyInfo info{};
  info.name = name;
  return {
      info,
      [](const void* copy_of) -> std::shared_ptr<void> {
        return copy_of ? std::make_shared<OneNumber>(*static_cast<const OneNumber*>(copy_of))
                       : std::make_shared<OneNumber>();
      },
      [](void* options, OptionVisitor& visit) { static_cast<OneNumber*>(options)->fields(visit); },
      [](const void*, const Resources&) -> std::unique_ptr<Strategy> { return std::make_unique<NoDraft>(); }};
}

// The linker happens to order the files of strategies/ by name; nothing may depend on that.
TEST(Registry, IsSortedWhateverTheOrderOfRegistration) {
  const std::size_t before = strategies().size();
  for (const char* name : {"zz_test", "_test", "mm_test"}) register_strategy(entry_of(name));
  EXPECT_EQ(strategies().size(), before + 3);
  EXPECT_TRUE(std::ranges::is_sorted(
      strategies(), {}, [](const StrategyEntry& entry) -> std::string_view { return entry.info.name; }));
  EXPECT_EQ(find_strategy("_test").info.name, "_test");
}

TEST(Registry, ACopyHasTheSameOptions) {
  const StrategyEntry entry = entry_of("local");
  StrategyChoice first(entry);
  parse_options(first.fields(), {{"number", 5}}, "");
  StrategyChoice second = first;
  EXPECT_EQ(echo_options(second.fields())["number"], 5);
  parse_options(first.fields(), {{"number", 6}}, "");
  EXPECT_EQ(echo_options(second.fields())["number"], 5);
}

}  // namespace
}  // namespace speclab::registry_test
