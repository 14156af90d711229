// What the real binary prints when its standard output is a terminal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>

#include "experiments/analysis/table.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::terminal_cli_test {
namespace {

using namespace speclab::fixtures;

class Terminal : public Speclab {
 protected:
  /// What the binary prints on a terminal of this many columns; 0: the terminal does not say its width.
  std::string on_terminal(std::vector<std::string> words, unsigned short columns) {
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0)
      throw std::runtime_error("no pseudo-terminal");
    const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_col = columns;
    if (terminal < 0 || ::ioctl(terminal, TIOCSWINSZ, &size) != 0)
      throw std::runtime_error("no terminal of this width");
    words.insert(words.begin(), SPECLAB_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string folder = dir().string();
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SPECLAB_BACKEND", "cpu", 1);
      const int nowhere = ::open("/dev/null", O_WRONLY);
      if (nowhere < 0 || ::chdir(folder.c_str()) != 0) ::_exit(126);
      ::dup2(terminal, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::close(terminal);
      ::close(master);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(terminal);
    std::string out;
    char block[4096];
    for (ssize_t size_read; (size_read = ::read(master, block, sizeof block)) > 0;)  // fails at the end
      out.append(block, static_cast<std::size_t>(size_read));
    ::close(master);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << words[1] << ": " << out;
    std::erase(out, '\r');  // the terminal adds it to each newline
    return out;
  }
};

std::size_t longest_line_of(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) longest = std::max(longest, shown_width(line));
  return longest;
}

TEST_F(Terminal, ListsFitIt) {
  for (const char* kind : {"strategies", "acceptances", "schedules", "metrics"}) {
    SCOPED_TRACE(kind);
    const std::string narrow = on_terminal({"list", kind}, 64);
    EXPECT_LE(longest_line_of(narrow), 64U) << narrow;
    EXPECT_THAT(narrow, HasSubstr("--wide")) << "what is left out is named";
    EXPECT_LE(longest_line_of(on_terminal({"list", kind}, 0)), 80U) << "an unknown width is 80";
    const std::string whole = on_terminal({"list", kind, "--wide"}, 64);
    EXPECT_GT(longest_line_of(whole), 80U);
    EXPECT_EQ(run({"list", kind}).out, whole) << "a file gets everything";
    EXPECT_EQ(run({"list", kind, "--wide"}).out, whole);
  }
  EXPECT_LE(longest_line_of(on_terminal({"describe", "generation"}, 80)), 80U);
}

TEST_F(Terminal, TheTableOfARunFitsItWithShortNames) {
  measure();
  const std::string note = "Cases have short names here.";
  const std::string out = on_terminal({"report", "run"}, 80);
  const std::size_t end = out.find(note);
  ASSERT_NE(end, std::string::npos) << out;
  const std::string table = out.substr(0, end);
  EXPECT_LE(longest_line_of(table), 80U) << table;
  EXPECT_THAT(table, AllOf(HasSubstr("small γ 3"), HasSubstr("lookup"), HasSubstr("speedup"),
                           Not(HasSubstr("gamma=3"))));
  const std::string id = "speculative_sampling/draft=small/gamma=3";
  EXPECT_THAT(on_terminal({"report", "run", "--wide"}, 80),
              AllOf(HasSubstr(id), Not(HasSubstr(note)), Not(HasSubstr("Not shown"))));
  EXPECT_THAT(run({"report", "run"}).out, AllOf(HasSubstr(id), Not(HasSubstr(note))));
  EXPECT_THAT(run({"report", "run", "--csv", "-"}).out, HasSubstr(id)) << "files have ids";
  const std::string plan = on_terminal({"run", "a.json", "--dry-run"}, 80);
  EXPECT_THAT(plan, AllOf(HasSubstr("small γ 3"), HasSubstr("skip γ 1"), Not(HasSubstr(id))));
  EXPECT_THAT(on_terminal({"run", "a.json", "--dry-run", "--wide"}, 80), HasSubstr(id));
}

}  // namespace
}  // namespace speclab::terminal_cli_test
