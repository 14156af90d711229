#include "core/base/error.h"

#include <gtest/gtest.h>

namespace speclab::error_test {
namespace {

TEST(Error, SaysWhatGotExpectedAndAdvice) {
  const Error error({"gamma", "-1", "1..64", "Choose a positive gamma."});
  EXPECT_STREQ(error.what(), "gamma: got -1, expected 1..64. Choose a positive gamma.");
}

TEST(Error, LeavesOutEmptyParts) {
  EXPECT_STREQ(Error({"model.gguf", "", "a file", ""}).what(), "model.gguf: expected a file");
}

TEST(Error, WhatFilesSayCannotReachTheTerminal) {
  const Error error({"f: tensor \x1b[2J\x07", "caf\xe9\n\xc2\x9b", "h\xc3\xa9 \xf0\x9f\x98\x80",
                     std::string(1'000'000, 'a')});
  const std::string what = error.what();
  EXPECT_TRUE(what.starts_with(
      "f: tensor \\x1b[2J\\x07: got caf\\xe9\\n\\xc2\\x9b, expected h\xc3\xa9 \xf0\x9f\x98\x80. aaa"))
      << what.substr(0, 100);
  EXPECT_TRUE(what.ends_with("aaa..."));
  EXPECT_LT(what.size(), 4200u);
  EXPECT_EQ(error.text().what, "f: tensor \\x1b[2J\\x07");
}

TEST(Check, ThrowsBugWithValues) {
  try {
    SPECLAB_CHECK(1 + 1 == 3, "sum is {}", 2);
    FAIL();
  } catch (const Bug& bug) {
    EXPECT_NE(std::string(bug.what()).find("sum is 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace speclab::error_test
