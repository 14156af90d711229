#include "experiments/run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/standard_streams.h"
#include "core/measure/clock.h"

namespace speclab {
namespace {

constexpr double kTerminalSeconds = 0.1, kPlainSeconds = 5;

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(seconds + .5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { finish(); }

void Progress::note(std::string_view message) {
  if (!quiet_) warn(message);
}

void Progress::warn(std::string_view message) { print_status("{}{}\n", drawn_ ? "\r\033[K" : "", message); }

void Progress::start(std::string_view what, int total, int done) {
  what_ = what;
  total_ = total;
  done_ = done_at_start_ = done;
  start_ns_ = wall_now_ns();
  last_ns_ = 0;
  draw("", false);
}

void Progress::advance(std::string_view detail) {
  ++done_;
  draw(detail, done_ == total_);
}

void Progress::draw(std::string_view detail, bool force) {
  const std::int64_t now = wall_now_ns();
  const double since = static_cast<double>(now - last_ns_) * 1e-9;
  if (quiet_ || total_ == 0 ||
      (!force && last_ns_ != 0 && since < (terminal_ ? kTerminalSeconds : kPlainSeconds)))
    return;
  last_ns_ = now;
  const double elapsed = static_cast<double>(now - start_ns_) * 1e-9;
  const int here = done_ - done_at_start_;
  const std::string left = here > 0 ? duration_text(elapsed / here * (total_ - done_)) : "?";
  std::string text = fmt::format("{} {}/{}  elapsed {}  remaining {}  {}", what_, done_, total_,
                                 duration_text(elapsed), left, detail);
  if (!terminal_) {
    print_status("{}\n", text);
    return;
  }
  constexpr int kBar = 24;
  const int filled = kBar * done_ / total_;
  text = fmt::format("[{}{}] {}", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kBar - filled), '.'), text);
  text.resize(std::min<std::size_t>(text.size(), static_cast<std::size_t>(terminal_width()) - 1));
  print_status("\r\033[K{}", text);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) write_status("\n");
  drawn_ = false;
  total_ = 0;
}

}  // namespace speclab
