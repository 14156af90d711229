#include "core/model/net/rope_table.h"

#include <gtest/gtest.h>

#include <climits>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"

namespace speclab::rope_table_test {
namespace {

using namespace speclab::fixtures;

TEST(RopeTable, RowsDoNotDependOnTheLengthOfTheTable) {
  Rope rope;
  rope.theta = 10'000;
  rope.dims = 8;
  rope.factor = 4;
  rope.original_context = 20;
  rope.attention_factor = 1.25f;
  rope.divisors = {1, 2, 3, 4};
  using enum Rope::Scaling;
  for (const Rope::Scaling scaling : {kNone, kLinear, kDynamic, kLlama3, kYarn, kListed}) {
    rope.scaling = scaling;
    const RopeTable whole = make_rope_table(rope, 50);
    RopeTable grown;
    for (const int positions : {1, 7, 20, 21, 50, 50}) grown = make_rope_table(rope, positions, grown);
    EXPECT_EQ(grown.cos, whole.cos) << static_cast<int>(scaling);
    EXPECT_EQ(grown.sin, whole.sin) << static_cast<int>(scaling);
    EXPECT_EQ(whole.cos.size(), 50u * 4);
    EXPECT_EQ(whole.cos[0], 1.25f);
  }
}

std::vector<float> last_logits(Session& session, int tokens) {
  std::vector<Token> text;
  for (int i = 0; i < tokens; ++i) text.push_back(7 * i % session.model().config().vocab);
  std::vector<float> logits(static_cast<std::size_t>(session.model().config().vocab));
  session.rewind(0);
  session.prefill(text, logits.data());
  return logits;
}

std::shared_ptr<const Model> tiny_with_context(int context) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.context = context;
  write_tiny_llama(dir.path(), shape, 3);
  return Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {});
}

/// The context is a number in a file, so no table is made for all of it.
TEST(RopeTable, AClaimedContextCostsNothing) {
  const auto claims = tiny_with_context(INT32_MAX), honest = tiny_with_context(600);
  const auto session = claims->open(16), longer = claims->open(500), whole = honest->open(600);
  EXPECT_EQ(last_logits(*session, 16), last_logits(*whole, 16));
  EXPECT_EQ(last_logits(*longer, 500), last_logits(*whole, 500));
  EXPECT_EQ(last_logits(*session, 16),
            last_logits(*whole, 16));  // its table outlives the longer one's making
  EXPECT_THROW(claims->open(INT32_MAX), Error);
}

}  // namespace
}  // namespace speclab::rope_table_test
