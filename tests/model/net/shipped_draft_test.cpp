// The drafts in models/draft/ give the values that PyTorch computed at their export, and are bound to their
// target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/model/net/target_model.h"

namespace speclab::shipped_draft_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace speclab::fixtures;

std::vector<fs::path> shipped_drafts() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "models/draft"))
    found.push_back(entry.path());
  return found;
}

TEST(ShippedDraft, LogitsAreThoseOfTheTraining) {
  SPECLAB_NEEDS_TARGET();
  ASSERT_FALSE(shipped_drafts().empty());
  for (const fs::path& folder : shipped_drafts()) {
    const auto draft = Model::load(Checkpoint::open(folder), make_cpu_backend({0, "f32"}),
                                   {.layers = {}, .target = target_model()});
    const auto ids_of_rows = draft->config().head_ids;
    std::ifstream file(folder / "golden.json");
    const json golden = json::parse(file);
    ASSERT_GE(golden.size(), 3u);
    for (const json& entry : golden) {
      const std::vector<Token> ids = entry.at("ids");
      std::vector<float> logits(static_cast<std::size_t>(draft->config().head_rows()));
      draft->open(static_cast<int>(ids.size()), 128)->prefill(ids, logits.data());
      float largest = 0;
      for (const float x : logits) largest = std::max(largest, std::abs(x));
      double best = -1e30;
      for (const json& pair : entry.at("top")) {
        const auto at = std::find(ids_of_rows.begin(), ids_of_rows.end(), pair.at(0).get<Token>());
        ASSERT_NE(at, ids_of_rows.end());
        const float value = logits[static_cast<std::size_t>(at - ids_of_rows.begin())];
        EXPECT_NEAR(value, pair.at(1).get<double>(), 1e-4 * largest)
            << folder << " " << entry.at("prompt") << " token " << pair.at(0);
        best = std::max<double>(best, value);
      }
      EXPECT_EQ(best, *std::max_element(logits.begin(), logits.end()))
          << "another token is the most probable";
    }
  }
}

TEST(ShippedDraft, RefusesAnotherTarget) {
  const auto expect_refused = [](const Shape& shape, const std::string& why) {
    TempDir dir;
    write_tiny_llama(dir.path() / "other", shape, 1);
    const auto other = Model::load(Checkpoint::open(dir.path() / "other"), make_cpu_backend({1, "f32"}), {});
    for (const fs::path& folder : shipped_drafts()) {
      const Checkpoint checkpoint = Checkpoint::open(folder);
      try {
        Model::load(checkpoint, make_cpu_backend({1, "f32"}), {.layers = {}, .target = other});
        FAIL() << folder << " was taken for a draft of another model";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(why));
      }
    }
  };
  Shape shape = tiny_shape();
  expect_refused(shape, "vocabulary of the draft");
  shape.vocab = 49'152;  // the target's: only the numbers differ
  expect_refused(shape, "embedding that the draft was trained on");
}

}  // namespace
}  // namespace speclab::shipped_draft_test
