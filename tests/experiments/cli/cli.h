#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace speclab::fixtures {

/// The real binary as a child process; its output goes to files.
class Cli {
 public:
  Cli(std::filesystem::path folder, std::vector<std::string> arguments) : folder_(std::move(folder)) {
    arguments.insert(arguments.begin(), SPECLAB_BINARY);
    start(std::move(arguments));
  }
  struct Shell {};
  /// A shell command in which $SPECLAB is the binary.
  Cli(Shell, std::filesystem::path folder, const std::string& command) : folder_(std::move(folder)) {
    start({"/bin/sh", "-c", "SPECLAB='" SPECLAB_BINARY "'; " + command});
  }
  ~Cli() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      wait();
    }
  }
  pid_t process() const { return child_; }  ///< 0 once it has ended
  /// Sends a signal. Does nothing once the process has ended, because kill(0) would signal this test's own
  /// process group.
  void kill(int signal) {
    if (child_ > 0) ::kill(child_, signal);
  }
  bool running() {
    if (child_ <= 0) return false;
    if (::waitpid(child_, &status_, WNOHANG) == 0) return true;
    child_ = 0;
    return false;
  }
  /// Waits for the end. Returns the exit code, or -signal if a signal ended the process.
  int wait() {
    if (child_ > 0) {
      ::waitpid(child_, &status_, 0);
      child_ = 0;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  std::string out() const { return read(folder_ / "stdout"); }
  std::string err() const { return read(folder_ / "stderr"); }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

 private:
  void start(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = (folder_ / "stdout").string(), err = (folder_ / "stderr").string(),
                      folder = folder_.string();
    child_ = ::fork();
    if (child_ == 0) {
      ::setenv("SPECLAB_BACKEND", "cpu", 1);  // the tests expect results of the CPU, even if there is a GPU
      const int out_file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644),
                err_file = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      if (out_file < 0 || err_file < 0 || ::chdir(folder.c_str()) != 0) ::_exit(126);
      ::dup2(out_file, 1);
      ::dup2(err_file, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }

  std::filesystem::path folder_;
  pid_t child_ = 0;
  int status_ = 0;
};

}  // namespace speclab::fixtures
