#include "core/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <utility>

#include "core/base/error.h"
#include "tests/base/error_text.h"

namespace speclab::mapped_file_test {
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

std::string open_error(const std::filesystem::path& path) {
  return fixtures::message_of([&] { MappedFile::open(path); });
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
  EXPECT_THAT(open_error(path_.string() + "x"),
              HasSubstr("x: got No such file or directory, expected a readable file"));
  EXPECT_THAT(open_error(path_.parent_path()), HasSubstr("got Is a directory, expected a regular file"));
  EXPECT_THAT(open_error("/dev/null"), HasSubstr("/dev/null: got Invalid argument, expected a regular file"));
  const std::string pipe = path_.string() + "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(open_error(pipe),
              HasSubstr("got Invalid argument, expected a regular file"));  // does not wait for a writer
  std::filesystem::remove(pipe);
}

TEST_F(MappedFileTest, NoticesThatTheFileWasWrittenTo) {
  const MappedFile file = MappedFile::open(path_);
  EXPECT_NO_THROW(file.require_unchanged());
  const auto error = [&]() -> std::string {
    try {
      file.require_unchanged();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  std::filesystem::resize_file(path_, 3);
  EXPECT_THAT(error(),
              HasSubstr(path_.string() + ": got 3 bytes now, expected the 9 bytes that were opened"));
  std::ofstream(path_) << "other one";
  std::filesystem::last_write_time(path_,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_THAT(error(), HasSubstr("got changed contents"));
  // A new file under the old name leaves the mapping as it was.
  std::ofstream(path_.string() + "2") << "a third one";
  std::filesystem::rename(path_.string() + "2", path_);
  EXPECT_EQ(error(), "no error");
}

TEST_F(MappedFileTest, KnowsWhatIsMappedWhere) {
  const std::byte* data = nullptr;
  {
    MappedFile first = MappedFile::open(path_);
    data = first.bytes().data();
    const MappedFile second = std::move(first);
    EXPECT_STREQ(MappedFile::path_at(data), path_.c_str());
    EXPECT_STREQ(MappedFile::path_at(data + 8), path_.c_str());
    EXPECT_EQ(MappedFile::path_at(data - 1), nullptr);
    EXPECT_EQ(MappedFile::path_at(nullptr), nullptr);
    EXPECT_EQ(MappedFile::path_at(&data), nullptr);
  }
  EXPECT_EQ(MappedFile::path_at(data), nullptr);           // unmapped
  for (int i = 0; i < 1000; ++i) MappedFile::open(path_);  // frees its entry in the table
  const MappedFile last = MappedFile::open(path_);
  EXPECT_STREQ(MappedFile::path_at(last.bytes().data()), path_.c_str());
}

/// Bytes of file pages in this process's memory.
std::size_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    std::size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes << 10;
  }
  return 0;
}

TEST_F(MappedFileTest, ForgottenPagesTakeNoMemoryAndCanBeReadAgain) {
  constexpr std::size_t kSize = std::size_t{32} << 20;
  std::ofstream(path_) << std::string(kSize, 'x');
  const MappedFile file = MappedFile::open(path_);
  const auto count = [&] { return std::count(file.text().begin(), file.text().end(), 'x'); };
  EXPECT_EQ(count(), kSize);
  const std::size_t before = resident_file_bytes();
  ASSERT_GE(before, kSize);
  file.forget_pages();
  EXPECT_LE(resident_file_bytes() + kSize * 3 / 4, before);
  EXPECT_EQ(count(), kSize);
}

}  // namespace
}  // namespace speclab::mapped_file_test
