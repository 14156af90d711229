#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/decoding/drafting/heads/head_children.h"
#include "tests/base/error_text.h"

// If a row of a head is not finite, the error names the head and not the target.

namespace speclab::head_children_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

TEST(HeadChildren, ARowThatIsNotFiniteIsTheFaultOfTheHead) {
  Sequence sequence;
  sequence.tokens = {1, 2};
  const TreeShape shape = TreeShape::chain(1);
  for (const HeadDraw draw : {HeadDraw::best, HeadDraw::without_replacement}) {
    HeadChildrenOptions options;
    options.children = draw;
    HeadChildren children(options, {}, 4);
    const auto grow = [&](const std::vector<float>& logits) {
      Draft draft;
      draft.reset(2);
      std::vector<HeadNode> level = HeadChildren::root();
      return message_of([&] { children.grow(sequence, draft, shape, logits, 1, level); });
    };
    EXPECT_EQ(grow({0, 1, 2, 3}), "no error");
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
      EXPECT_THAT(grow({0, bad, 2, 3}), HasSubstr("logits of the trained head"));
    EXPECT_EQ(grow({0, 1, 2, 3}), "no error");
  }
}

}  // namespace
}  // namespace speclab::head_children_test
