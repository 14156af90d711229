#include "experiments/cli/mapped_file_fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "core/base/mapped_file.h"
#include "experiments/cli/command.h"

namespace speclab {
namespace {

void say(const char* text) {
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Calls only functions that POSIX allows in a signal handler.
void on_bus_error(int, siginfo_t* info, void*) {
  const char* path = MappedFile::path_at(info->si_addr);
  if (info->si_code <= 0 || path == nullptr) {  // another process sent the signal, or no file is mapped here
    ::signal(SIGBUS, SIG_DFL);
    ::raise(SIGBUS);  // takes effect when this handler returns
    return;
  }
  say("error: ");  // the message has the form of an Error
  say(path);
  say(": got a page that is gone or cannot be read, expected the file as it was when it was opened. Another "
      "program shortened it, or the disk failed. Fetch the file again and do not change it while it is in "
      "use.\n");
  ::_exit(kUserError);
}

}  // namespace

void report_mapped_file_faults() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace speclab
