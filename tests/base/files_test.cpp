#include "core/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/base/error_text.h"

namespace speclab::files_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  Files() : dir_(fs::path(testing::TempDir()) / ("speclab-files-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~Files() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(Files, APathThatCannotBeLookedAtIsAnErrorWithItsReason) {
  EXPECT_TRUE(path_exists(dir_));
  EXPECT_FALSE(path_exists(dir_ / "none" / "deeper"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_FALSE(path_exists(dir_ / "file" / "below"));
  EXPECT_THAT(fixtures::message_of([&] { path_exists(dir_ / std::string(300, 'a')); }),
              AllOf(HasSubstr("File name too long"), HasSubstr("at most 255 bytes")));
}

TEST_F(Files, FoldersThatWereMadeAreNamedFromTheOutermostOn) {
  EXPECT_THAT(make_folders(dir_ / "a" / "b/"), ElementsAre(dir_ / "a", dir_ / "a/b"));
  EXPECT_TRUE(fs::is_directory(dir_ / "a/b"));
  EXPECT_THAT(make_folders(dir_ / "a" / "b"), ElementsAre());
  std::ofstream(dir_ / "file") << "x";
  EXPECT_THAT(fixtures::message_of([&] { make_folders(dir_ / "file"); }), HasSubstr("Not a directory"));
  EXPECT_THAT(fixtures::message_of([&] { make_folders(dir_ / "file" / "below"); }),
              AllOf(HasSubstr("cannot make the folder"), HasSubstr("Not a directory")));
  EXPECT_THAT(folder_entries(dir_), ElementsAre(dir_ / "a", dir_ / "file"));
  EXPECT_THAT(folder_entries(dir_ / "none"), ElementsAre());
}

TEST_F(Files, AFileIsReadWholeOrNotAtAll) {
  const std::string text(200'000, 'x');
  std::ofstream(dir_ / "file") << text;
  EXPECT_EQ(read_whole_file(dir_ / "file"), text);
  EXPECT_THAT(fixtures::message_of([&] { read_whole_file(dir_ / "none", "a prompt file"); }),
              HasSubstr("none: got No such file or directory, expected a prompt file"));
  EXPECT_THAT(fixtures::message_of([&] { read_whole_file(dir_); }), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace speclab::files_test
