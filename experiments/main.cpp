// speclab: one binary for everything. Errors are caught here and nowhere else.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/measure/environment.h"
#include "experiments/command.h"
#include "experiments/mapped_file_fault.h"

namespace speclab {
namespace {

void print_overview(std::FILE* out) {
  fmt::print(out, "speclab {}: speculative decoding, measured beside its theory\n\nCommands:\n",
             build_info().version);
  for (const Command& command : commands()) fmt::print(out, "  {:<9} {}\n", command.name, command.summary);
  fmt::print(out,
             "\nspeclab COMMAND --help shows options and an example.\n"
             "Exit codes: 0 ok, 1 a check failed, 2 user error, 3 bug, 130 interrupted (Ctrl-C, SIGTERM or SIGHUP; "
             "finished lines are kept).\n");
}

int dispatch(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    print_overview(stderr);
    return kUserError;
  }
  const std::string& name = words[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_overview(stdout);
    return kOk;
  }
  if (name == "--version") {
    fmt::print("speclab {} ({}{})\n", build_info().version, build_info().commit,
               build_info().dirty ? ", changed" : "");
    return kOk;
  }
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    if (command.name == name) return command.run(command, {words.begin() + 2, words.end()});
    known.emplace_back(command.name);
  }
  throw Error({.what = "speclab",
               .got = fmt::format("unknown command \"{}\"", name),
               .expected = "",
               .advice = suggest(name, known)});
}

}  // namespace
}  // namespace speclab

int main(int argc, char** argv) {
  using namespace speclab;
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an ordinary write error
  std::signal(SIGPIPE, SIG_IGN);
  report_mapped_file_faults();
  const std::vector<std::string> words(argv, argv + argc);
  set_command_line(words);
  try {
    const int code = dispatch(words);
    if (std::fflush(stdout) != 0 && code == kOk) {
      fmt::print(stderr, "error: cannot write to standard output\n");
      return kUserError;
    }
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kUserError;
  } catch (const Bug& bug) {
    fmt::print(stderr, "bug: {}\n", bug.what());
    return kBug;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: memory: got none left. Free some, raise the limit of the shell (ulimit -v), or ask for less.\n");
    return kUserError;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) {  // fmt::print met it before the flush above
      fmt::print(stderr, "error: cannot write to standard output\n");
      return kUserError;
    }
    fmt::print(stderr, "bug: {}\n", error.what());
    return kBug;
  }
}
