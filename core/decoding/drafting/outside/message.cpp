#include "core/decoding/drafting/outside/message.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace speclab::outside {
namespace {

constexpr std::size_t kHeader = 2 * sizeof(std::uint32_t);

[[noreturn]] void broken(std::string got) {
  throw Error({"the connection between engine and proposer", std::move(got),
               "a program at the other end that answers every request",
               "See what the program with the proposer printed."});
}

std::string reason(int code) { return std::generic_category().message(code); }

/// Waits until the socket can be read (POLLIN) or written (POLLOUT). Throws DeadlinePassed.
void wait_for(int socket, short event, Deadline deadline) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{60'000};  // one call of poll
  while (true) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) throw DeadlinePassed();
    const milliseconds wait = std::min(kLongest, std::chrono::ceil<milliseconds>(left));
    pollfd watched{socket, event, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(wait.count()));
    if (ready > 0) return;  // also if the connection is broken, which the next call of recv or send reports
    if (ready < 0 && errno != EINTR) broken(reason(errno));
  }
}

bool again(int code) { return code == EINTR || code == EAGAIN || code == EWOULDBLOCK; }

/// Receives exactly `size` bytes.
void receive_all(int socket, char* into, std::size_t size, Deadline deadline) {
  while (size > 0) {
    wait_for(socket, POLLIN, deadline);
    const ssize_t got = ::recv(socket, into, size, MSG_DONTWAIT);
    if (got < 0 && again(errno)) continue;
    if (got < 0) broken(reason(errno));
    if (got == 0) broken("its end");
    into += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace

void Reader::take(void* into, std::size_t count, std::size_t size) {
  if (count > bytes_.size() / size) {
    throw Error({"a message of the proposer", fmt::format("{} bytes at its end", bytes_.size()),
                 fmt::format("{} numbers of {} bytes", count, size),
                 "core/decoding/drafting/outside/message.h describes the messages."});
  }
  if (count > 0) std::memcpy(into, bytes_.data(), count * size);
  bytes_.remove_prefix(count * size);
}

std::int32_t Reader::number() {
  std::int32_t value = 0;
  take(&value, 1, sizeof value);
  return value;
}

void Reader::numbers(std::size_t count, std::vector<std::int32_t>& out) {
  out.resize(std::min(count, bytes_.size() / sizeof(std::int32_t)));  // take() throws if they are too few
  take(out.data(), count, sizeof(std::int32_t));
}

void Reader::numbers(std::size_t count, std::vector<float>& out) {
  out.resize(std::min(count, bytes_.size() / sizeof(float)));
  take(out.data(), count, sizeof(float));
}

void send_message(int socket, Kind kind, std::string_view bytes, Deadline deadline) {
  const std::uint32_t header[] = {static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(bytes.size())};
  std::string whole(kHeader, '\0');
  std::memcpy(whole.data(), header, kHeader);
  whole += bytes;
  std::string_view rest = whole;
  while (!rest.empty()) {
    wait_for(socket, POLLOUT, deadline);
    const ssize_t sent = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && again(errno)) continue;
    if (sent < 0) broken(reason(errno));
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

Kind receive_message(int socket, std::size_t most, std::string& bytes, Deadline deadline) {
  char header[kHeader];
  receive_all(socket, header, kHeader, deadline);
  std::uint32_t kind = 0, size = 0;
  std::memcpy(&kind, header, sizeof kind);
  std::memcpy(&size, header + sizeof kind, sizeof size);
  if (size > most) {
    ::shutdown(socket, SHUT_RDWR);  // the rest of the message must not be read as the next one
    throw Error({"a message of the proposer", fmt::format("{} bytes", size),
                 fmt::format("at most {} bytes", most),
                 "core/decoding/drafting/outside/message.h describes the messages."});
  }
  bytes.resize(size);
  receive_all(socket, bytes.data(), size, deadline);
  return static_cast<Kind>(kind);
}

}  // namespace speclab::outside
