// Output and status that cannot be written do not end a run. Only lost output changes the exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::streams_cli_test {
namespace {

using namespace speclab::fixtures;

class Streams : public Speclab {
 protected:
  /// Expects a complete run with all lines and files.
  void expect_whole(const std::string& folder) {
    ASSERT_TRUE(fs::exists(dir() / folder / "summary.json")) << folder;
    EXPECT_TRUE(read_json_file(dir() / folder / "summary.json")["complete"].get<bool>()) << folder;
    EXPECT_NO_THROW(record_of(dir() / folder));
    for (const auto& entry : fs::recursive_directory_iterator(dir() / folder)) {
      if (!entry.is_regular_file()) continue;
      EXPECT_THAT(Cli::read(entry.path()), Not(HasSubstr("elapsed"))) << "status in " << entry.path();
    }
  }
};

TEST_F(Streams, AStderrThatCannotBeWrittenChangesNothing) {
  int number = 0;
  for (const char* error : {"2>&-", "2>/dev/full", "2>&1 >/dev/null | head -c 1 >/dev/null",
                            "2>&1 >/dev/null | true", "<&- 2>&-", "<&- >/dev/null 2>&-"}) {
    SCOPED_TRACE(error);
    const std::string out = "run" + std::to_string(number++);
    // The exit code is written to a file, because a pipe returns the code of its last command.
    const Result result = shell("{ $SPECLAB run a.json --out " + out + "; echo $? > code; } " + error);
    EXPECT_EQ(Cli::read(dir() / "code"), "0\n") << result.err;
    expect_whole(out);
  }
  for (const char* error : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(shell(std::string("$SPECLAB run none.json ") + error).code, 2) << error;
    EXPECT_EQ(shell(std::string("$SPECLAB ") + error).code, 2) << error;
    EXPECT_EQ(
        shell(std::string("$SPECLAB generate --model target --set max_tokens=4 --prompt '1 2' ") + error)
            .code,
        0)
        << error;
  }
}

TEST_F(Streams, OutputThatIsLostIsReported) {
  for (const char* words : {"list strategies", "--help", "run --help", "theory --alpha .8 --gamma 3",
                            "model target", "generate --model target --set max_tokens=4 --prompt '1 2'",
                            "generate --model target --json --set max_tokens=4 --prompt '1 2'"}) {
    SCOPED_TRACE(words);
    for (const char* out : {"> /dev/full", ">&-"}) {
      const Result result = shell(std::string("$SPECLAB ") + words + " " + out);
      EXPECT_EQ(result.code, 2) << result.err;
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr("error: cannot write to standard output"), Not(HasSubstr("bug"))));
    }
    EXPECT_EQ(shell(std::string("$SPECLAB ") + words + " > /dev/full 2> /dev/full").code, 2);
  }
  const Result run = shell("$SPECLAB run a.json --out run -q > /dev/full");
  EXPECT_EQ(run.code, 2) << "the table is lost";
  expect_whole("run");
}

TEST_F(Streams, StatisticsOfATextStandOnALineOfTheirOwn) {
  const Result both = shell("$SPECLAB generate --model target --set max_tokens=4 --prompt '1 2' 2>&1");
  ASSERT_EQ(both.code, 0) << both.out;
  const std::size_t at = both.out.find("4 tokens, 3 steps");
  ASSERT_NE(at, std::string::npos) << both.out;
  ASSERT_GE(at, 8U) << "the text comes first";
  EXPECT_EQ(both.out[at - 1], '\n') << both.out;
}

TEST_F(Streams, AReaderThatClosesThePipeEndsTheCommandQuietly) {
  for (const char* words :
       {"list strategies", "list strategies --json", "--help", "describe generation",
        "run a.json --dry-run --json",
        "generate --model target --set max_tokens=200 --set ignore_eos=true --prompt '1 2'"}) {
    SCOPED_TRACE(words);
    for (const char* reader : {"true", "head -1", "head -c 1"}) {
      const Result result = shell(std::string("{ $SPECLAB ") + words + " 2> said; echo $? > code; } | " +
                                  reader + " > /dev/null");
      EXPECT_EQ(result.code, 0);
      EXPECT_EQ(Cli::read(dir() / "code"), "0\n");
      EXPECT_THAT(Cli::read(dir() / "said"), AllOf(Not(HasSubstr("error")), Not(HasSubstr("bug")))) << reader;
    }
  }
  const Result wrong = shell("{ $SPECLAB run none.json 2> said; echo $? > code; } | true");
  EXPECT_EQ(Cli::read(dir() / "code"), "2\n") << wrong.err;
}

}  // namespace
}  // namespace speclab::streams_cli_test
