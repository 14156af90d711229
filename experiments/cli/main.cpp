// The `speclab` binary: finds the command, runs it, and turns exceptions into messages and exit codes.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/standard_streams.h"
#include "core/measure/environment.h"
#include "experiments/cli/command.h"
#include "experiments/cli/mapped_file_fault.h"

namespace speclab {
namespace {

std::string overview() {
  std::string text =
      fmt::format("speclab {}: measures speculative decoding and compares it with theory\n\nCommands:\n",
                  build_info().version);
  for (const Command& command : commands())
    text += fmt::format("  {:<9} {}\n", command.name, command.summary);
  return text +
         "\nspeclab COMMAND --help shows options and an example.\n"
         "Exit codes: 0 ok, 1 a check failed, 2 user error, 3 bug, 130 interrupted (Ctrl-C, SIGTERM or "
         "SIGHUP; finished lines are kept).\n";
}

int dispatch(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    write_status(overview());
    return kUserError;
  }
  const std::string& name = words[1];
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", overview());
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

/// The exit code of dispatch(), or of the exception that it throws.
int run_command(const std::vector<std::string>& words) {
  try {
    return dispatch(words);
  } catch (const Error& error) {
    print_status("error: {}\n", error.what());
    return kUserError;
  } catch (const Bug& bug) {
    print_status("bug: {}\n", bug.what());
    return kBug;
  } catch (const std::bad_alloc&) {
    write_status(
        "error: out of memory. Free memory, raise the shell's limit (ulimit -v), or run something "
        "smaller.\n");
    return kUserError;
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0) {
      print_status("bug: {}\n", error.what());
      return kBug;
    }
    note_output_error(error.code().value());  // fmt::print threw the error
    return kOk;                               // finish() reports the error of the output
  } catch (const std::exception& error) {
    print_status("bug: {}\n", error.what());
    return kBug;
  }
}

/// Writes the rest of the output and returns the exit code. A closed pipe (`| head`) is not an error, because
/// its reader has what it wanted. Any other failure loses data and is an error.
int finish(int code) {
  const int error = flush_output();
  if (error == 0 || error == EPIPE) return code;
  print_status("error: cannot write to standard output: {}\n", std::strerror(error));
  return code == kOk ? kUserError : code;
}

}  // namespace
}  // namespace speclab

int main(int argc, char** argv) {
  using namespace speclab;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit then gives an ordinary write error
  std::signal(SIGPIPE, SIG_IGN);
  // If stdout is not a terminal, this buffer holds the output of a command until finish(), unless the output
  // is larger or the command flushes it. So the first write, which may fail, usually comes after the exit
  // code is known.
  static char buffer[1 << 18];
  if (::isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  report_mapped_file_faults();
  const std::vector<std::string> words(argv, argv + argc);
  set_command_line(words);
  return finish(run_command(words));
}
