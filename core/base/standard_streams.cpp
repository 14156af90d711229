#include "core/base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace speclab {
namespace {

constexpr int kUsualColumns = 80;

int g_output_error = 0;

}  // namespace

void open_standard_streams() noexcept {
  // Each open() takes the lowest free descriptor. A closed stdout is opened for reading, so that writing to
  // it still fails.
  constexpr int kModes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int number = 0; number < 3; ++number) {
    if (::fcntl(number, F_GETFD) == -1 && errno == EBADF && ::open("/dev/null", kModes[number]) != number)
      return;
  }
}

void write_status(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {  // another process made the terminal non-blocking
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&ready, 1, 1000) <= 0) return;
    } else if (written == 0 || errno != EINTR) {
      return;
    }
  }
}

void write_status_line(std::string_view line) noexcept { print_status("{}\n", line); }

int flush_output() noexcept {
  if (std::fflush(stdout) != 0) note_output_error(errno);
  return g_output_error;
}

void note_output_error(int error) noexcept {
  if (g_output_error == 0) g_output_error = error;
}

std::optional<int> output_columns() noexcept {
  if (::isatty(STDOUT_FILENO) == 0) return std::nullopt;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return static_cast<int>(size.ws_col);
}

}  // namespace speclab
