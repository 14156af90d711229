#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace speclab {

/// Shows the progress of a run on stderr. A terminal gets a bar with elapsed and remaining time. Anything
/// else gets plain lines: one at the start, at most one every five seconds, and one when all is done. A quiet
/// Progress prints only the lines of warn().
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  void note(std::string_view message);  ///< prints a line
  /// Prints a line even if quiet: why the exit code is not 0, or why there is no table.
  void warn(std::string_view message);
  void start(std::string_view what, int total, int done);
  void advance(std::string_view detail);
  void finish();

 private:
  void draw(std::string_view detail, bool force);

  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::string what_;
  int total_ = 0, done_ = 0, done_at_start_ = 0;
  std::int64_t start_ns_ = 0, last_ns_ = 0;
};

std::string duration_text(double seconds);  ///< "4.2 s", "3:07", "1:02:05"

}  // namespace speclab
