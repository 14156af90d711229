#pragma once

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>

namespace speclab {

/// Opens /dev/null for each standard stream that is closed. Otherwise a data file could get descriptor 0, 1
/// or 2 and then receive status messages or output. If stdout was closed, writing to it still fails, and the
/// failure is reported. Call this first in main().
void open_standard_streams() noexcept;

/// Writes a status message for people to stderr. When stderr is closed, full or a pipe without a
/// reader, the text is lost and nothing else happens: status never ends a command and never
/// changes its exit code. The process must ignore SIGPIPE.
void write_status(std::string_view text) noexcept;
template <class... Values>
void print_status(fmt::format_string<Values...> format, Values&&... values) noexcept {
  try {
    write_status(fmt::format(format, std::forward<Values>(values)...));
  } catch (...) {  // out of memory: the text is lost
  }
}

/// Calls write_status() with `line` and a newline. `line` itself has no newline.
void write_status_line(std::string_view line) noexcept;

/// Flushes stdout. Returns 0, or the errno of the first failure to write to stdout.
int flush_output() noexcept;
/// Records the errno of a write to stdout that failed in other code. flush_output() returns the first one.
void note_output_error(int error) noexcept;
/// The width in columns of the terminal that shows stdout; 80 if the terminal does not tell its width. No
/// value if stdout is not a terminal.
std::optional<int> output_columns() noexcept;

}  // namespace speclab
