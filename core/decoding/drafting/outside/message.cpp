#include "core/decoding/drafting/outside/message.h"

#include <fmt/format.h>
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

/// Receives exactly `size` bytes.
void receive_all(int socket, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(socket, into, size, 0);
    if (got < 0 && errno == EINTR) continue;
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

void send_message(int socket, Kind kind, std::string_view bytes) {
  const std::uint32_t header[] = {static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(bytes.size())};
  std::string whole(kHeader, '\0');
  std::memcpy(whole.data(), header, kHeader);
  whole += bytes;
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) broken(reason(errno));
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

Kind receive_message(int socket, std::size_t most, std::string& bytes) {
  char header[kHeader];
  receive_all(socket, header, kHeader);
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
  receive_all(socket, bytes.data(), size);
  return static_cast<Kind>(kind);
}

}  // namespace speclab::outside
