#include "core/decoding/drafting/outside/proposer_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace speclab::outside {
namespace {

constexpr std::size_t kMostErrorBytes = 1 << 16;  // of the text of a failure

std::string_view name_of(Kind request) {
  switch (request) {
    case Kind::hello: return "hello";
    case Kind::begin: return "begin";
    case Kind::propose: return "propose";
    case Kind::observe: return "observe";
    default: return "another request";
  }
}

Deadline after(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

ProposerLink::ProposerLink(const std::string& name, int vocab, int batch, int gamma, double time_limit)
    : name_(name.empty() ? "without a name" : name),
      vocab_(vocab),
      gamma_(gamma),
      time_limit_(time_limit),
      steps_(static_cast<std::size_t>(batch)) {
  connect();
  try {
    for (const std::int32_t number : {kProtocol, vocab, batch, gamma}) writer_.add(number);
    ask(Kind::hello, Kind::done, fmt::format("proposer {}", name_));
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

ProposerLink::~ProposerLink() { ::close(socket_); }

void ProposerLink::connect() {
  const char* const path = std::getenv(kSocketVariable);
  if (path == nullptr || *path == '\0') {
    throw Error({fmt::format("{} in the environment", kSocketVariable), "nothing",
                 "the socket of a program that proposes the tokens",
                 "speclab.measure_proposer in Python starts such a run; see docs/python.md."});
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string_view text = path;
  if (text.size() >= sizeof address.sun_path) {
    throw Error({fmt::format("{} in the environment", kSocketVariable),
                 fmt::format("a path of {} bytes", text.size()),
                 fmt::format("at most {} bytes", sizeof address.sun_path - 1), "Use a shorter path."});
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      socket_ >= 0 && ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (connected) return;
  const int code = errno;
  if (socket_ >= 0) ::close(socket_);
  throw Error({fmt::format("{} in the environment: {}", kSocketVariable, text),
               std::generic_category().message(code), "a socket on which a proposer listens",
               "Start the program with the proposer first."});
}

std::string ProposerLink::where(int slot) const {
  return fmt::format("proposer {}, step {}", name_, steps_[static_cast<std::size_t>(slot)]);
}

Kind ProposerLink::exchange(Kind request, const std::string& where) {
  const std::size_t most = std::max(kMostErrorBytes, most_bytes(vocab_, gamma_));
  const Deadline deadline = after(time_limit_);
  try {
    send_message(socket_, request, writer_.bytes(), deadline);
    return receive_message(socket_, most, answer_, deadline);
  } catch (const DeadlinePassed&) {
    ::shutdown(socket_, SHUT_RDWR);
    throw Error({where, fmt::format("no answer to `{}` within {:g} s", name_of(request), time_limit_),
                 "an answer to every request",
                 "See what the program with the proposer does. If it only needs more time, set time_limit to "
                 "more seconds."});
  }
}

void ProposerLink::ask(Kind request, Kind answer, const std::string& where) {
  const Kind kind = exchange(request, where);
  writer_.clear();
  if (kind == answer) return;
  if (kind == Kind::failure) throw Error({where, answer_, "", ""});
  throw Error({where, fmt::format("an answer of kind {}", static_cast<std::uint32_t>(kind)),
               fmt::format("kind {}", static_cast<std::uint32_t>(answer)),
               "core/decoding/drafting/outside/message.h describes the answers."});
}

void ProposerLink::begin(const Sequence& sequence) {
  steps_[static_cast<std::size_t>(sequence.slot)] = 0;
  writer_.clear();
  for (const std::int32_t number : {sequence.slot, sequence.turn, sequence.prompt_length})
    writer_.add(number);
  writer_.add(TokenSpan(sequence.tokens));
  ask(Kind::begin, Kind::done, fmt::format("proposer {}, the beginning of a text", name_));
}

const Proposal& ProposerLink::propose(const Sequence& sequence, TokenSpan drafted, int most) {
  writer_.clear();
  const int drawn = sequence.sampling.temperature > 0 ? 1 : 0;
  for (const std::int32_t number : {sequence.slot, steps_[static_cast<std::size_t>(sequence.slot)], most,
                                    drawn, static_cast<int>(drafted.size())})
    writer_.add(number);
  writer_.add(TokenSpan(sequence.tokens));
  writer_.add(drafted);
  const std::string at = where(sequence.slot);
  ask(Kind::propose, Kind::proposal, at);
  read_proposal(answer_, vocab_, most, at, proposal_);
  return proposal_;
}

void ProposerLink::observe(const Sequence& sequence, int accepted, int emitted) {
  writer_.clear();
  int& step = steps_[static_cast<std::size_t>(sequence.slot)];
  for (const std::int32_t number : {sequence.slot, step, accepted}) writer_.add(number);
  writer_.add(TokenSpan(sequence.tokens).last(static_cast<std::size_t>(emitted)));
  ask(Kind::observe, Kind::done, where(sequence.slot));
  ++step;
}

}  // namespace speclab::outside
