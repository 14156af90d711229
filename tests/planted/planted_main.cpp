// speclab_planted: the `speclab` binary with a fault in its engine (plant.h), for the proof of `speclab
// compare` (scripts/studies/compare_proof.py). Without --plant it has the same code and no fault.
//
//   speclab_planted [--plant FAULT=AMOUNT] [--plant-seed N] [--plant-report FILE] COMMAND [arguments]
//
// --plant-report writes what was planted (Tally) to a file when the command has ended. The record of a run
// has these words in "command_line" of its environment.json.
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "tests/planted/plant.h"

namespace speclab::planted {
namespace {

struct Words {
  Plant plant;
  std::string report;                ///< file for the tally; "" for none
  std::vector<std::string> command;  ///< the name of the command and its arguments, never empty
};

[[noreturn]] void refuse(std::string got) {
  throw Error(
      {.what = "speclab_planted",
       .got = std::move(got),
       .expected = "[--plant FAULT=AMOUNT] [--plant-seed N] [--plant-report FILE] COMMAND [arguments]",
       .advice = "For example: speclab_planted --plant draft=0.03 run configs/compare_proof.json."});
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, seed);
  if (read.ec != std::errc() || read.ptr != end) refuse("--plant-seed " + text);
  return seed;
}

/// `words`: the command line with the name of the program.
Words read_words(const std::vector<std::string>& words) {
  Words found;
  std::uint64_t seed = found.plant.seed;
  std::size_t at = 1;
  for (; at + 1 < words.size() && words[at].starts_with("--"); at += 2) {
    const std::string &name = words[at], &value = words[at + 1];
    if (name == "--plant") found.plant = parse_plant(value);
    else if (name == "--plant-seed") seed = parse_seed(value);
    else if (name == "--plant-report") found.report = value;
    else refuse("option " + name);
  }
  found.plant.seed = seed;
  for (; at < words.size(); ++at) found.command.push_back(words[at]);
  if (found.command.empty()) refuse("no command");
  return found;
}

nlohmann::json report_of(const Plant& plant, const Tally& counts) {
  return {{"fault", to_string(plant.fault)}, {"amount", plant.amount},     {"seed", plant.seed},
          {"steps", counts.steps},           {"step_ns", counts.step_ns},  {"delay_ns", counts.delay_ns},
          {"drafted", counts.drafted},       {"replaced", counts.replaced}};
}

int run_planted(const std::vector<std::string>& words) {
  const Words given = read_words(words);
  set_plant(given.plant);
  for (const Command& command : commands()) {
    if (command.name != given.command.front()) continue;
    const int code = command.run(command, {given.command.begin() + 1, given.command.end()});
    if (!given.report.empty()) write_json_file(given.report, report_of(given.plant, tally()));
    return code;
  }
  refuse("unknown command \"" + given.command.front() + "\"");
}

int exit_code(const std::vector<std::string>& words) {
  try {
    return run_planted(words);
  } catch (const Error& error) {
    print_status("error: {}\n", error.what());
    return kUserError;
  } catch (const std::exception& error) {
    print_status("bug: {}\n", error.what());
    return kBug;
  }
}

}  // namespace
}  // namespace speclab::planted

int main(int argc, char** argv) {
  using namespace speclab;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv, argv + argc);
  set_command_line(words);
  const int code = planted::exit_code(words);
  const int error = flush_output();
  if (error == 0 || error == EPIPE || code != kOk) return code;
  print_status("error: cannot write to standard output\n");
  return kUserError;
}
