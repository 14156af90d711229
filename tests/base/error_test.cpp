#include "core/base/error.h"

#include <gtest/gtest.h>

namespace speclab {
namespace {

TEST(Error, SaysWhatGotExpectedAndAdvice) {
  const Error error({"gamma", "-1", "1..64", "Choose a positive gamma."});
  EXPECT_STREQ(error.what(), "gamma: got -1, expected 1..64. Choose a positive gamma.");
}

TEST(Error, LeavesOutEmptyParts) { EXPECT_STREQ(Error({"model.gguf", "", "a file", ""}).what(), "model.gguf: expected a file"); }

TEST(Check, ThrowsBugWithValues) {
  try {
    SPECLAB_CHECK(1 + 1 == 3, "sum is {}", 2);
    FAIL();
  } catch (const Bug& bug) {
    EXPECT_NE(std::string(bug.what()).find("sum is 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace speclab
