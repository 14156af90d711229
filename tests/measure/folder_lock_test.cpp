#include "core/measure/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>

#include "core/base/error.h"

namespace speclab::folder_lock_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Lock : public ::testing::Test {
 protected:
  Lock() : dir_(fs::path(testing::TempDir()) / ("speclab-lock-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~Lock() override { fs::remove_all(dir_); }
  /// The error of a second writer; "" when it gets the folder.
  std::string refusal() const {
    try {
      FolderLock second(dir_, {"second"});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  fs::path dir_;
};

TEST_F(Lock, ASecondWriterIsToldWhoHoldsTheFolder) {
  std::optional<FolderLock> first(std::in_place, dir_, std::vector<std::string>{"speclab", "run", "a.json"});
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("process " + std::to_string(::getpid()) + " on " + host + " since 20"),
                    HasSubstr(": speclab run a.json"), HasSubstr("one writer at a time")));
  std::optional<FolderLock> moved(std::move(*first));
  first.reset();
  EXPECT_NE(refusal(), "") << "a lock that was moved is still held";
  moved.reset();
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(fs::exists(dir_ / "run.lock"));
}

TEST_F(Lock, IsReleasedByAProcessThatWasKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    FolderLock held(dir_, {"killed"});
    std::ofstream(dir_ / "ready").put('x');
    for (;;) ::pause();
  }
  while (!fs::exists(dir_ / "ready")) ::usleep(1000);
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(dir_ / "run.lock")) << "it stays behind";
  EXPECT_EQ(refusal(), "") << "and does no harm";
}

TEST_F(Lock, WhatIsNoLineOfAHolderIsNotRepeated) {
  FolderLock held(dir_, {"speclab"});
  std::ofstream(dir_ / "run.lock") << "[1, 2";
  EXPECT_THAT(refusal(), HasSubstr("another process writes, another process"));
}

TEST_F(Lock, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(FolderLock(dir_ / "none", {}), Error);
  fs::create_symlink("elsewhere", dir_ / "run.lock");
  EXPECT_NE(refusal(), "") << "a link is not followed";
  EXPECT_FALSE(fs::exists(dir_ / "elsewhere"));
}

}  // namespace
}  // namespace speclab::folder_lock_test
