// Mistakes outside the config: permissions, names, bytes that are no text, missing models. Each gives exit
// code 2 and a message before a model is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::user_errors_cli_test {
namespace {

using namespace speclab::fixtures;

class UserErrors : public Speclab {
 protected:
  /// Expects exit code 2, one error with these words, and that no model was loaded.
  void expect_early_error(const Result& result, const std::vector<std::string>& words) {
    expect_error(result, words);
    EXPECT_THAT(result.err, Not(HasSubstr("loading")));
  }
  /// Runs the command as a user without rights in this folder.
  Result as_stranger(const std::string& command) { return shell(stranger() + "$SPECLAB " + command); }
  static std::string stranger() {
    return ::geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
  }
};

TEST_F(UserErrors, MissingPermission) {
  const Result probe = as_stranger("--version");
  if (probe.code != 0) GTEST_SKIP() << "no command can run as another user here: " << probe.err;
  measure("run", {"--filter", "lookup"});
  const auto everyone = fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write;
  fs::create_directories(dir() / "locked");
  fs::copy(dir() / "run", dir() / "locked" / "run", fs::copy_options::recursive);
  fs::copy(dir() / "a.json", dir() / "locked" / "a.json");
  fs::copy(dir() / "target", dir() / "locked" / "target", fs::copy_options::recursive);
  std::ofstream(dir() / "locked" / "p.jsonl") << "\"1 2\"\n";
  std::ofstream(dir() / "unreadable.json") << "{}";
  fs::permissions(dir() / "unreadable.json", fs::perms::none);
  fs::permissions(dir() / "locked", fs::perms::none);
  if (::geteuid() != 0) fs::permissions(dir(), everyone & ~fs::perms::owner_write);
  const char* commands[] = {
      "run a.json --out new",
      "run a.json --out locked/new",
      "run a.json --out locked/run --resume",
      "run a.json --out run --resume --filter lookup --set calibration=false",
      "run locked/a.json --out /tmp/never",
      "run unreadable.json --out /tmp/never",
      "run a.json --out /tmp/never --set target=locked/target",
      "run a.json --out /tmp/never --set drafts.small.model=locked/target",
      "run a.json --out /tmp/never --set 'prompts={\"file\": \"locked/p.jsonl\"}'",
      "run a.json --out /tmp/never --set target=/root/x --set name=y",
      "report locked/run",
      "report locked/run --json",
      "report run --csv locked/x.csv",
      "report run --csv new.csv",
      "explain locked/run",
      "compare locked/run run",
      "compare run locked/run",
      "lookahead locked/run",
      "model locked/target",
      "generate --model locked/target --prompt 1",
  };
  for (const std::string command : commands) {
    SCOPED_TRACE(command);
    const Result result = as_stranger(command);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: "));
    EXPECT_THAT(result.err, HasSubstr("Permission denied"));
    EXPECT_THAT(result.err, Not(HasSubstr("bug:")));
    EXPECT_THAT(result.err, Not(HasSubstr("loading")));
  }
  fs::permissions(dir(), fs::perms::all);
  fs::permissions(dir() / "locked", fs::perms::all);
  EXPECT_FALSE(fs::exists("/tmp/never"));
}

TEST_F(UserErrors, LongNames) {
  const std::string name(300, 'n');
  expect_early_error(run({"run", "a.json", "--out", name}), {"File name too long", "255"});
  expect_early_error(run({"run", "a.json", "--out", "x/" + name}), {"File name too long"});
  EXPECT_FALSE(fs::exists(dir() / "x")) << "what was made is taken away again";
  expect_early_error(run({"run", "a.json", "--out", name, "--resume"}), {"File name too long"});
  expect_early_error(run({"run", "a.json", "--set", "name=" + name}), {"/name", "300 bytes"});
  expect_early_error(run({"run", "a.json", "--out", "x", "--set", "target=" + name}), {"File name too long"});
  expect_early_error(run({"run", name}), {"File name too long"});
  for (const char* command : {"report", "explain", "lookahead"})
    expect_early_error(run({command, name}), {"File name too long"});
  expect_early_error(run({"compare", name, name}), {"File name too long"});
  std::string path = "p";
  while (path.size() < 3900) path += "/" + std::string(99, 'p');
  expect_early_error(run({"run", "a.json", "--out", path}), {"--out", "bytes"});
  json several = config();
  several.erase("target");
  several["targets"] = {{name, "target"}};
  write(several);
  expect_early_error(run({"run", "a.json", "--out", "x"}), {"/targets", "300 bytes"});
}

TEST_F(UserErrors, NamesCannotLeaveTheirFolder) {
  for (const char* name : {"../../../x", "/tmp/x", "a/b", ""})
    expect_early_error(run({"run", "a.json", "--set", std::string("name=\"") + name + "\""}),
                       {"/name", "without a slash"});
  EXPECT_FALSE(fs::exists(dir() / "results"));
}

TEST_F(UserErrors, BytesThatAreNoText) {
  for (const char* more : {"", " --json", " --dry-run --json", " --dry-run"})
    expect_early_error(
        shell("$SPECLAB run a.json --out x --set name=\"$(printf 'a\\377b')\"" + std::string(more)),
        {"--set", "\\xff", "UTF-8"});
  EXPECT_FALSE(fs::exists(dir() / "x"));
  const Result strange =
      shell("f=$(printf 'b\\377.json'); cp a.json \"$f\"; exec $SPECLAB run \"$f\" --dry-run --json");
  EXPECT_EQ(strange.code, 0) << strange.err;
  EXPECT_EQ(json::parse(strange.out)["file"], "b\\xff.json");
}

TEST_F(UserErrors, MissingModelsAreNoticedBeforeOneIsLoaded) {
  expect_early_error(run({"run", "a.json", "--out", "x", "--set", "target=nowhere"}),
                     {"nowhere: got no such file or directory"});
  expect_early_error(run({"run", "a.json", "--out", "x", "--set", "drafts.small.model=nowhere"}),
                     {"nowhere: got no such file or directory"});
  json several = config();
  several.erase("target");
  several["targets"] = {{"first", "target"}, {"second", "nowhere"}};
  write(several);
  expect_early_error(run({"run", "a.json", "--out", "x"}), {"nowhere: got no such file or directory"});
  EXPECT_FALSE(fs::exists(dir() / "x"));
}

TEST_F(UserErrors, AFolderThatCannotBeMadeIsNoticedBeforeAModelIsLoaded) {
  expect_early_error(run({"run", "a.json", "--out", "a.json/run"}),
                     {"cannot make the folder a.json/run", "Not a directory"});
  expect_early_error(run({"run", "a.json", "--out", "a.json"}), {"a.json", "Not a directory"});
  expect_early_error(run({"run", "a.json", "--out", "/proc/run"}), {"/proc/run"});
  measure("run", {"--filter", "lookup"});
  expect_early_error(run({"run", "a.json", "--out", "run"}), {"a run already"});
  expect_early_error(run({"run", "a.json", "--out", "run", "--resume"}), {"another config"});
}

TEST_F(UserErrors, ADraftMustNotBeCalledTarget) {
  json named = config();
  named["drafts"]["target"] = {{"model", "draft"}};
  write(named);
  expect_early_error(run({"run", "a.json", "--out", "x"}), {"/drafts", "\"target\""});
  named = config();
  named["cases"][1]["draft"] = {{"model", "target"}};  // its name comes from its path
  write(named);
  expect_early_error(run({"run", "a.json", "--out", "x"}), {"/drafts", "\"target\"", "Name it"});
}

TEST_F(UserErrors, ATruncatedPromptFileIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's library must come first";
#endif
  json from_file = config();
  from_file["prompts"] = {{"file", "failing.jsonl"}};
  write(from_file);
  std::ofstream(dir() / "failing.jsonl")
      << "\"1 2 3\"\n\"4 5 6\"\n\"7 8 9\"\n\"1 2 3 4 5 6 7 8 9 10\"\n\"2\"\n\"3\"\n\"4\"\n\"5\"\n\"6\"\n";
  EXPECT_EQ(run({"run", "a.json", "--dry-run"}).code, 0);
  expect_early_error(shell("LD_PRELOAD='" SPECLAB_FAILING_READ "' exec $SPECLAB run a.json --dry-run"),
                     {"failing.jsonl: got Input/output error"});
}

}  // namespace
}  // namespace speclab::user_errors_cli_test
