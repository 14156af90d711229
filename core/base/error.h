#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace speclab {

/// Reports something wrong in the outside world: a file, a config, an option, a device. The four parts make
/// one message: "WHAT: got GOT, expected EXPECTED. ADVICE". Empty parts are left out. If an Error ends a
/// command, the command has exit code 2.
class Error : public std::runtime_error {
 public:
  struct Text {
    std::string what;      ///< the thing that is wrong and where: "configs/a.json: /cases/0/gamma"
    std::string got;       ///< what was found
    std::string expected;  ///< what would have been right
    std::string advice;    ///< what to do, a full sentence
  };
  explicit Error(Text text);
  const Text& text() const { return text_; }

 private:
  Text text_;
};

/// Reports a programming error, such as a failed SPECLAB_CHECK. If a Bug ends a command, the command prints
/// "bug: ..." and has exit code 3.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace speclab

/// Throws Bug when the condition is false. The message is an fmt format string and its values.
#define SPECLAB_CHECK(condition, ...)                                                                  \
  do {                                                                                                 \
    if (!(condition)) ::speclab::fail_check(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
