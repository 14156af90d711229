#include "core/decoding/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/options_json.h"

namespace speclab::registry_test {
namespace {

using nlohmann::json;

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

TEST(Registry, EachSearchHasOneStrategy) {
  for (const SearchedAs what :
       {SearchedAs::model_chain, SearchedAs::copies, SearchedAs::ngram_chain, SearchedAs::window}) {
    const auto count = std::ranges::count_if(
        strategies(), [&](const StrategyEntry& entry) { return entry.info.searched_as == what; });
    EXPECT_EQ(count, 1) << static_cast<int>(what);
    EXPECT_EQ(searched_strategy(what).info.searched_as, what);
  }
}

// The commands that search a strategy set these options (SearchedAs).
TEST(Registry, ASearchedStrategyHasTheOptionsOfItsSearch) {
  const auto has = [](SearchedAs what, const std::vector<std::string>& options) {
    StrategyChoice choice(searched_strategy(what));
    const json known = echo_options(choice.fields());
    return std::ranges::all_of(options, [&](const std::string& name) { return known.contains(name); });
  };
  EXPECT_TRUE(has(SearchedAs::model_chain, {"gamma"}));
  EXPECT_TRUE(has(SearchedAs::copies, {"length"}));
  EXPECT_TRUE(has(SearchedAs::ngram_chain, {"gamma"}));
  EXPECT_TRUE(has(SearchedAs::window, {"W", "N", "G"}));
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
