#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/mutate.h"

/// Reads the seeds of the fuzzers and all their findings (tests/regressions/inputs/<entry point>/). A file
/// must be accepted or refused with an Error. Files whose name begins with "good" must be accepted, those
/// with "bad" refused.
namespace speclab::fuzz {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> inputs(std::string_view entry_point) {
  std::vector<fs::path> out;
  for (const char* folder : {"tests/fuzz/corpus", "tests/regressions/inputs"}) {
    const fs::path path = fs::path(SPECLAB_SOURCE_DIR) / folder / entry_point;
    if (!fs::exists(path)) continue;
    for (const auto& entry : fs::directory_iterator(path)) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

class Corpus : public ::testing::TestWithParam<EntryPoint> {};

TEST_P(Corpus, IsAcceptedOrRefusedAsItsNamesSay) {
  int good = 0;
  for (const fs::path& path : inputs(GetParam().name)) {
    SCOPED_TRACE(path.string());
    const std::string name = path.filename().string();
    bool accepted = false;
    ASSERT_NO_THROW(accepted = GetParam().read(read_file(path)));
    if (name.starts_with("good")) {
      EXPECT_TRUE(accepted);
    } else if (name.starts_with("bad")) {
      EXPECT_FALSE(accepted);
    }
    good += accepted;
  }
  EXPECT_GT(good, 0) << "no input of " << GetParam().name << " is accepted";
}

/// A short fuzz run with fixed seeds, for machines without clang.
TEST_P(Corpus, MutationsAreAcceptedOrRefused) {
  std::vector<std::string> pool;
  for (const fs::path& path : inputs(GetParam().name)) pool.push_back(read_file(path));
  ASSERT_FALSE(pool.empty());
  constexpr unsigned kInputs = 600;
  unsigned accepted = 0;
  for (unsigned seed = 0; seed < kInputs; ++seed) {
    Random random(seed);
    const auto plain = [&random](std::string& bytes) { mutate_plain(bytes, random); };
    std::string input = pool[random() % pool.size()];
    for (unsigned i = 0, n = 1 + random() % 3; i < n; ++i)
      input = mutate(GetParam().name, std::move(input), random, plain);
    bool good = false;
    ASSERT_NO_THROW(good = GetParam().read(input)) << "seed " << seed;
    accepted += good;
    if (good && pool.size() < 200) pool.push_back(input);  // mutates it further, as a fuzzer does
  }
  // Otherwise the mutated inputs would fail the first checks.
  EXPECT_GT(accepted, kInputs / 100) << GetParam().name;
  EXPECT_LT(accepted, kInputs) << GetParam().name;
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(entry_points().begin(), entry_points().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace speclab::fuzz
