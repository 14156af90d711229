#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace speclab {

/// Status for people on stderr: a bar with elapsed and remaining time on a terminal, plain lines otherwise,
/// at most one every five seconds. Quiet prints warnings only.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  void note(std::string_view message);  ///< a line of its own
  void warn(std::string_view
                message);  ///< the same, printed by a quiet one too: it says why the exit code is not 0
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
