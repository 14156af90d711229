#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/run/model_set.h"

namespace boost::program_options {
class options_description;
class variables_map;
}  // namespace boost::program_options

/// The commands of the `speclab` binary, and helpers that they share: arguments, errors, interrupts.
namespace speclab {

/// Exit codes of every command.
enum ExitCode { kOk = 0, kCheckFailed = 1, kUserError = 2, kBug = 3, kInterrupted = 130 };

/// A command of the `speclab` binary. It writes data to stdout and status to stderr.
struct Command {
  std::string_view name;
  std::string_view usage;    ///< the arguments: "CONFIG [options]"
  std::string_view summary;  ///< a short text for the overview and for --help
  std::string_view example;  ///< a complete command line that works
  int (*run)(const Command& command, const std::vector<std::string>& arguments);
};
std::span<const Command> commands();

extern const Command kRunCommand, kGenerateCommand, kListCommand, kDescribeCommand, kModelCommand,
    kTheoryCommand, kExplainCommand, kCompareCommand, kReportCommand, kBenchCommand, kNumericsCommand,
    kDatastoreCommand, kNgramCommand, kLookaheadCommand, kAuditCommand, kOptimizeCommand, kSimulateCommand,
    kReplayCommand, kTraceCommand, kPreflightCommand, kMergeCommand, kToyCommand;

/// Parses the arguments of a command. `positional` names the positional arguments in order; if the last name
/// ends in "...", it takes all remaining ones. Prints the help and returns nothing for --help. Throws Error
/// for anything unknown or malformed.
std::optional<boost::program_options::variables_map> parse_arguments(
    const Command& command, const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options, const std::vector<std::string>& positional);
/// The value of a required argument. Throws Error when it is missing.
std::string required(const boost::program_options::variables_map& values, const std::string& name,
                     const Command& command);

/// Throws Error if one of the options was given. `where` says where they do nothing: "speclab replay without
/// --check".
void refuse_options(const boost::program_options::variables_map& values, const std::string& where,
                    std::initializer_list<const char*> names);

/// Adds --backend (default: SPECLAB_BACKEND in the environment, else auto), --device, --numerics, --threads,
/// --kernels, --prefill and --self-test.
void add_backend_options(boost::program_options::options_description& options, BackendChoice& choice);
/// Returns those of these options that the user set, as words of a command line such as "--threads=2".
std::vector<std::string> backend_words(const boost::program_options::variables_map& values,
                                       const BackendChoice& choice);

/// Adds --wide.
void add_wide_option(boost::program_options::options_description& options);
/// The width of the terminal, which tables on stdout must fit (fitted_text()). No value if stdout is no
/// terminal or if --wide was given.
std::optional<int> table_width(const boost::program_options::variables_map& values);

/// Adds --inflate, such as --inflate hidden=2048,ffn=8192.
void add_inflate_option(boost::program_options::options_description& options, std::string& text);
/// Reads the value of --inflate, a list of sizes. Throws Error if the text is malformed.
InflateShape parse_inflate_text(const std::string& text);

/// Calls `work`, which reads run folders for `command`. If a record holds a JSON value of the wrong type,
/// throws an Error about the record. Without this, the command would report a bug of the program.
int reading_records(const Command& command, const std::function<int()>& work);

/// True after SIGINT (Ctrl-C), SIGTERM or SIGHUP (unless SIGHUP is ignored, as under nohup). A second signal
/// ends the process at once. Call catch_interrupts() first. An interrupted command returns kInterrupted,
/// whichever of these signals came.
bool interrupted();
void catch_interrupts();

/// The whole command line, which a run stores in its environment.json. main sets it.
const std::vector<std::string>& command_line();
void set_command_line(std::vector<std::string> words);

}  // namespace speclab
