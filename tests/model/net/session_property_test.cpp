// Compares random trees, commits, rewinds, forks, copies and batches of sessions bit for bit with a fresh
// prefill of the same text. tests/slow/session_property_test.cpp is the long version.
#include <gtest/gtest.h>

#include "tests/model/net/session_life.h"

namespace speclab::session_property_test {
namespace {

TEST(SessionProperty, EqualsRePrefillBitForBit) {
  const int lives =
      4 * static_cast<int>(fixtures::kLifeModelCount *
                           fixtures::life_classes().size());  // each class, model and number of threads
  EXPECT_GE(fixtures::compare_lives(2 * lives, 2), 2 * lives);
}

}  // namespace
}  // namespace speclab::session_property_test
