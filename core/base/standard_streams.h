#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace speclab {

/// Opens /dev/null in place of standard streams that are closed, so that no data file gets number 0, 1 or 2
/// and then receives status or output. Writing to a standard output that was closed still fails, and is
/// reported. Call it first in main().
void open_standard_streams() noexcept;

/// Status for people, on stderr. When stderr is closed, full or a pipe that is not read any more, the text is
/// lost and nothing else happens: status never ends a command and never changes its exit code. SIGPIPE must
/// be ignored.
void write_status(std::string_view text) noexcept;
template <class... Values>
void print_status(fmt::format_string<Values...> format, Values&&... values) noexcept {
  try {
    write_status(fmt::format(format, std::forward<Values>(values)...));
  } catch (...) {  // no memory for the text
  }
}

/// Writes out what stdout holds back. Returns 0, or the errno of the first failure to write to stdout.
int flush_output() noexcept;
/// Keeps the errno of a failure that was met elsewhere, if it is the first.
void note_output_error(int error) noexcept;

}  // namespace speclab
