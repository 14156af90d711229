#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/outside/message.h"
#include "core/decoding/drafting/outside/proposal.h"
#include "tests/model/files/model_files.h"

namespace speclab::fixtures {

/// A request of the engine to a proposer.
struct ProposerRequest {
  int slot = 0, step = 0, most = 0, drawn = 0, drafted = 0;
  std::vector<Token> text;  ///< with the drafted tokens at its end
};

/// A program with a proposer: a thread of the test that serves a socket. An Error that `propose` throws
/// becomes the answer `failure`.
class ProposerPeer {
 public:
  using Propose = std::function<outside::Proposal(const ProposerRequest&)>;

  explicit ProposerPeer(Propose propose) : propose_(std::move(propose)) {
    path_ = (dir_.path() / "socket").string();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path_.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, path_.data(), std::min(path_.size(), sizeof address.sun_path - 1));
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path_;
    EXPECT_EQ(::listen(listener_, 16), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~ProposerPeer() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  ProposerPeer(const ProposerPeer&) = delete;
  ProposerPeer& operator=(const ProposerPeer&) = delete;

  /// Makes strategies of this process connect to this program.
  void use() const { ::setenv("SPECLAB_PROPOSER", path_.c_str(), 1); }

  /// What the engine reported after each step, in order: {accepted, the emitted tokens}.
  using Observed = std::pair<int, std::vector<Token>>;
  std::vector<Observed> observed() const {
    const std::lock_guard lock(mutex_);
    return observed_;
  }
  /// The texts that began, each with its pending token.
  std::vector<std::vector<Token>> begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  void serve() {
    std::vector<pollfd> watched{{listener_, POLLIN, 0}};
    while (!stop_) {
      if (::poll(watched.data(), watched.size(), 20) <= 0) continue;
      const bool calls = watched[0].revents != 0;
      for (std::size_t i = 1; i < watched.size(); ++i) {
        if (watched[i].revents == 0 || answer(watched[i].fd)) continue;
        ::close(watched[i].fd);
        watched[i].fd = -1;
      }
      std::erase_if(watched, [](const pollfd& one) { return one.fd < 0; });
      if (!calls) continue;
      const int accepted = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted >= 0) watched.push_back({accepted, POLLIN, 0});
    }
    for (std::size_t i = 1; i < watched.size(); ++i) ::close(watched[i].fd);
  }

  /// Answers one request. Returns false when the connection has ended.
  bool answer(int socket) {
    using outside::Kind;
    std::string bytes;
    try {
      const Kind kind = outside::receive_message(socket, 1 << 24, bytes);
      outside::Reader reader(bytes);
      outside::Writer writer;
      Kind reply = Kind::done;
      std::string failure;
      if (kind == Kind::propose) {
        try {
          write(propose_(request_of(reader)), writer);
          reply = Kind::proposal;
        } catch (const Error& error) {
          reply = Kind::failure;
          failure = error.what();
        }
      } else if (kind == Kind::begin || kind == Kind::observe) {
        note(kind == Kind::begin, reader);
      }
      outside::send_message(socket, reply,
                            reply == Kind::failure ? std::string_view(failure) : writer.bytes());
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  static std::vector<Token> rest(outside::Reader& reader) {
    std::vector<Token> tokens;
    reader.numbers(reader.left() / sizeof(Token), tokens);
    return tokens;
  }

  static ProposerRequest request_of(outside::Reader& reader) {
    ProposerRequest out;
    for (int* number : {&out.slot, &out.step, &out.most, &out.drawn, &out.drafted}) *number = reader.number();
    out.text = rest(reader);
    return out;
  }

  static void write(const outside::Proposal& proposal, outside::Writer& writer) {
    writer.add(proposal.tree ? 1 : 0);
    writer.add(static_cast<int>(proposal.tokens.size()));
    writer.add(proposal.row_count);
    writer.add(TokenSpan(proposal.tokens));
    writer.add(std::span<const std::int32_t>(proposal.parents));
    writer.add(std::span<const float>(proposal.rows));
  }

  void note(bool begin, outside::Reader& reader) {
    const int slot = reader.number();
    EXPECT_GE(slot, 0);
    const int second = reader.number(), third = reader.number();
    EXPECT_GE(second, 0);  // the turn, or the step
    const std::lock_guard lock(mutex_);
    if (begin) begun_.push_back(rest(reader));
    else observed_.emplace_back(third, rest(reader));
  }

  TempDir dir_;
  std::string path_;
  Propose propose_;
  int listener_ = -1;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<Observed> observed_;
  std::vector<std::vector<Token>> begun_;
  std::thread thread_;
};

/// Copies what followed the first earlier occurrence of the text's last tokens, as `prompt_lookup` does with
/// its default options. It tries the last three tokens first.
inline outside::Proposal propose_copies(const ProposerRequest& asked) {
  outside::Proposal proposal;
  const std::vector<Token>& text = asked.text;
  for (std::size_t n = 3; n >= 1; --n) {
    for (std::size_t from = n; from < text.size(); ++from) {
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(from);
      if (!std::equal(end - static_cast<std::ptrdiff_t>(n), end, text.end() - static_cast<std::ptrdiff_t>(n)))
        continue;
      const std::size_t count = std::min(text.size() - from, static_cast<std::size_t>(asked.most));
      proposal.tokens.assign(end, end + static_cast<std::ptrdiff_t>(count));
      return proposal;
    }
  }
  return proposal;
}

}  // namespace speclab::fixtures
