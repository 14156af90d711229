#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_tree.h"
#include "core/measure/run_result.h"
#include "tests/base/error_text.h"
#include "tests/model/files/model_files.h"

// Shapes of the trees that heads draft: index paths, files, the head's own tree.

namespace speclab::head_tree_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The figure of Medusa's tree attention (Cai et al. 2024): two tokens of the first head, and three of the
// second head below each of them.
TEST(HeadTree, TheTreeOfMedusasFigure) {
  const IndexPaths paths{{0}, {1}, {0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}};
  const TreeShape shape = shape_of_paths(paths, "figure");
  EXPECT_EQ(shape.nodes(), 9);
  EXPECT_EQ(shape.depth(), 2);
  EXPECT_EQ(shape.widths(), (std::vector<int>{2, 3}));
  EXPECT_EQ(shape.first_child(1), 3);
  EXPECT_EQ(shape.first_child(2), 6);
}

TEST(HeadTree, PathsComeInAnyOrder) {
  const TreeShape shape = shape_of_paths({{0, 0, 0}, {1}, {0, 0}, {0}}, "list");
  EXPECT_EQ(shape.nodes(), 5);
  EXPECT_EQ(shape.children(0), 2);
  EXPECT_EQ(shape.children(1), 1);
  EXPECT_EQ(shape.children(2), 0);
  EXPECT_EQ(shape.children(3), 1);
  EXPECT_THAT(message_of([] { shape_of_paths({{0}, {0, 1}}, "list"); }),
              AllOf(HasSubstr("list"), HasSubstr("[0, 1]"), HasSubstr("lower last rank")));
  EXPECT_THAT(message_of([] { shape_of_paths({{0}, {1, 0}}, "list"); }),
              AllOf(HasSubstr("[1, 0]"), HasSubstr("without its last rank")));
  EXPECT_THAT(message_of([] { shape_of_paths({{0}, {0}}, "list"); }), HasSubstr("each path once"));
}

TEST(HeadTree, ThePublishedTreeOfMedusa) {
  HeadTreeOptions options;
  options.tree = std::string(SPECLAB_SOURCE_DIR) + "/models/trees/medusa_63.json";
  HeadCard card;
  const TreeShape shape = options.shape(card, 4, 100, "test");
  EXPECT_EQ(shape.nodes(), 64);  // with the pending token
  EXPECT_EQ(shape.depth(), 4);
  EXPECT_EQ(shape.children(0), 10);
  EXPECT_THAT(message_of([&] { options.shape(card, 3, 100, "test"); }),
              AllOf(HasSubstr("4 levels"), HasSubstr("at most 3")));
  EXPECT_THAT(message_of([&] { options.shape(card, 4, 9, "test"); }),
              AllOf(HasSubstr("10 children"), HasSubstr("at most 9")));
}

// Li et al. 2024, EAGLE: 25 nodes in five levels below the pending token.
TEST(HeadTree, ThePublishedTreeOfEagle) {
  HeadTreeOptions options;
  options.tree = std::string(SPECLAB_SOURCE_DIR) + "/models/trees/eagle_25.json";
  const TreeShape shape = options.shape(HeadCard(), 5, 100, "test");
  EXPECT_EQ(shape.nodes(), 26);  // with the pending token
  EXPECT_EQ(shape.depth(), 5);
  EXPECT_EQ(shape.children(0), 4);
}

TEST(HeadTree, OptionsComeBeforeTheCard) {
  HeadCard card;
  HeadTreeOptions options;
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{1, 1, 1}));
  card.tree = {{0}, {1}};
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{2}));
  options.widths = {3, 1};
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{3, 1}));
  const TempDir dir;
  options.tree = (dir.path() / "tree.json").string();
  EXPECT_THAT(message_of([&] { options.shape(card, 3, 9, "test"); }), HasSubstr("test: widths, tree"));
  options.widths.clear();
  EXPECT_THAT(message_of([&] { options.shape(card, 3, 9, "test"); }), HasSubstr("tree.json"));
  using json = nlohmann::json;
  write_json_file(options.tree, json::parse("[[0], [0, 0]]"));
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{1, 1}));
  write_json_file(options.tree, json::parse(R"({"paths": [[0], [1], [2]], "source": "somewhere"})"));
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{3}));
  write_json_file(options.tree,
                  json::parse(R"({"format": "speclab tree 1", "parents": [0, 1], "ranks": [1, 1]})"));
  EXPECT_EQ(options.shape(card, 3, 9, "test").widths(), (std::vector<int>{1, 1}));
  write_json_file(options.tree, json::parse("[[0], [0.5]]"));
  EXPECT_THAT(message_of([&] { options.shape(card, 3, 9, "test"); }),
              AllOf(HasSubstr("tree.json: /1"), HasSubstr("[0.5]")));
  write_json_file(options.tree, json::parse(R"({"paths": 3})"));
  EXPECT_THAT(message_of([&] { options.shape(card, 3, 9, "test"); }), HasSubstr("tree.json: /paths"));
}

}  // namespace
}  // namespace speclab::head_tree_test
