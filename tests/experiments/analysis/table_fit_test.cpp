#include "experiments/analysis/table_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace speclab::table_fit_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) longest = std::max(longest, shown_width(line));
  return longest;
}

TEST(FittedText, ATableThatFitsAndAFileAreWhole) {
  const Table table{.header = {"name", "γ"}, .rows = {{"one", "1"}, {"two", "—"}}, .right = {false, true}};
  EXPECT_EQ(to_text(table), "name  γ\n-------\none   1\ntwo   —\n");
  EXPECT_EQ(fitted_text(table, 7), to_text(table));
  Table wide = table;
  wide.header[0] = std::string(300, 'x');
  wide.expendable = wide.header;
  EXPECT_EQ(fitted_text(wide, std::nullopt), to_text(wide));
}

TEST(FittedText, TextsAreDividedAfterSpacesAndSlashes) {
  const Table words{.header = {"name", "what"}, .rows = {{"a", "one two three four"}}, .right = {}};
  EXPECT_EQ(fitted_text(words, 14),
            "name  what\n"
            "-------------\n"
            "a     one two\n"
            "      three\n"
            "      four\n");
  const Table ids{
      .header = {"case", "tau"}, .rows = {{"sampling/draft=a/gamma=3", "1.5"}}, .right = {false, true}};
  EXPECT_EQ(fitted_text(ids, 15),
            "case       tau\n"
            "--------------\n"
            "sampling/  1.5\n"
            "draft=a/\n"
            "gamma=3\n");
}

TEST(FittedText, NumbersAreNeverDivided) {
  const Table table{.header = {"case", "speedup [95 %]"},
                    .rows = {{"a b c d", "1.84 [1.54, 2.24] (n = 9)"}},
                    .right = {false, true}};
  EXPECT_THAT(fitted_text(table, 32), HasSubstr("  1.84 [1.54, 2.24] (n = 9)\n"));
  EXPECT_LE(longest_line(fitted_text(table, 32)), 32U);
  EXPECT_EQ(longest_line(fitted_text(table, 10)), 31U) << "nothing can be left out, so lines are too long";
}

TEST(FittedText, ColumnsAreLeftOutInTheirOrderAndNamed) {
  const Table table{.header = {"case", "x", "wide", "y"},
                    .rows = {{"aaaa", "1", "1234567890", "2"}},
                    .right = {false, true, true, true},
                    .expendable = {"x", "none", "wide"}};
  EXPECT_EQ(fitted_text(table, 22), to_text(table));
  EXPECT_EQ(fitted_text(table, 20),
            "case        wide  y\n"
            "-------------------\n"
            "aaaa  1234567890  2\n"
            "Not shown: x. --wide\n"
            "shows every column.\n");
  const std::string narrow = fitted_text(table, 12);
  EXPECT_THAT(narrow, StartsWith("case  x  y\n----------\naaaa  1  2\n"))
      << "x has room again after a wide column was left out";
  EXPECT_THAT(narrow, AllOf(HasSubstr("wide."), Not(HasSubstr("x."))));
}

TEST(FittedText, LinesAreNeverTooLongIfColumnsCanGo) {
  Table table{.header = {"name", "source", "rule", "class", "number"},
              .rows = {},
              .right = {false, false, false, false, true},
              .expendable = {"class", "rule", "source"}};
  for (int i = 0; i < 9; ++i) {
    std::string text;
    for (int word = 0; word <= 3 * i; ++word) text += (word > 0 ? " " : "") + std::string(1 + word % 7, 'w');
    table.rows.push_back({"name_" + std::to_string(i), text, "a/b " + text, "L1 at T > 0", "12.345"});
  }
  for (int width = 20; width <= 240; ++width) {
    const std::string text = fitted_text(table, width);
    EXPECT_LE(longest_line(text), static_cast<std::size_t>(width));
    for (int i = 0; i < 9; ++i) EXPECT_THAT(text, HasSubstr("name_" + std::to_string(i)));
  }
  EXPECT_THAT(fitted_text(table, 80), Not(HasSubstr("Not shown"))) << "texts are divided first";
}

TEST(FittedSummary, HasShortNamesAndTheMostImportantNumbers) {
  const auto entry = [](const std::string& id, const std::string& strategy, const nlohmann::json& reference) {
    return nlohmann::json{{"id", id},
                          {"strategy", strategy},
                          {"target", "t"},
                          {"loss_class", "L2"},
                          {"lossy", false},
                          {"rule", "rejection"},
                          {"reference", reference},
                          {"errors", 0},
                          {"prompts", 9},
                          {"metrics",
                           {{"tau", 1.84},
                            {"tau_bound", 2.5},
                            {"alpha", .5},
                            {"c", .052},
                            {"ms_per_token", 4.1},
                            {"tokens_per_second", 243.2},
                            {"speedup", 1.4},
                            {"speedup_ci95", {1.23, 1.62}},
                            {"copied_4grams", .2},
                            {"ops_factor", 1.1},
                            {"matches_reference", true}}}};
  };
  const nlohmann::json summary = {
      {"cases",
       {entry("autoregressive", "autoregressive", nullptr),
        entry("speculative_sampling/draft=distilled/gamma=3", "speculative_sampling", "autoregressive"),
        entry("speculative_sampling/draft=distilled/gamma=4", "speculative_sampling", "autoregressive")}}};
  EXPECT_EQ(fitted_summary(summary, std::nullopt), to_text(summary_table(summary)));
  const std::string text = fitted_summary(summary, 80);
  EXPECT_LE(longest_line(text), 80U);
  EXPECT_THAT(text, AllOf(HasSubstr("distilled γ 3"), HasSubstr("1.40 [1.23, 1.62] (n = 9)"),
                          HasSubstr("equal"), HasSubstr("tau"), Not(HasSubstr("speculative_sampling"))));
  EXPECT_THAT(text, AllOf(HasSubstr("Not shown: class, "), HasSubstr("--wide"), HasSubstr("short names")));
  EXPECT_THAT(fitted_summary(summary, 300),
              AllOf(Not(HasSubstr("Not shown")), HasSubstr("distilled γ 3"), HasSubstr("copied")));
}

}  // namespace
}  // namespace speclab::table_fit_test
