#include "core/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    path_ = std::filesystem::temp_directory_path() / ("speclab-mapped-" + std::to_string(::getpid()));
    std::ofstream(path_) << "some text";
  }
  ~MappedFileTest() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

std::string error_of(const std::filesystem::path& path) {
  try {
    MappedFile::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(MappedFileTest, HoldsTheFileAndStaysWhereItIsWhenMoved) {
  MappedFile first = MappedFile::open(path_);
  EXPECT_EQ(first.text(), "some text");
  EXPECT_EQ(first.path(), path_);
  const std::byte* data = first.bytes().data();
  MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  std::ofstream(path_.string() + "2") << "other";
  second = MappedFile::open(path_.string() + "2");
  EXPECT_EQ(second.text(), "other");
  std::filesystem::remove(path_.string() + "2");
  EXPECT_EQ(second.text(), "other");  // the mapping outlives the name
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  std::ofstream(path_, std::ios::trunc).close();
  EXPECT_EQ(MappedFile::open(path_).bytes().size(), 0u);
}

TEST_F(MappedFileTest, SaysWhyAFileCannotBeMapped) {
  EXPECT_THAT(error_of(path_.string() + "x"),
              HasSubstr("x: got No such file or directory, expected a readable file"));
  EXPECT_THAT(error_of(path_.parent_path()), HasSubstr("got Is a directory, expected a regular file"));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("/dev/null: got Invalid argument, expected a regular file"));
}

}  // namespace
}  // namespace speclab
