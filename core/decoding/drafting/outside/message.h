#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"

// The messages between the engine and a proposer, a program outside the engine that proposes tokens. The
// proposer listens on a Unix stream socket. The engine connects once for each strategy object that it makes.
// It then sends one request at a time and waits for the answer.
//
// A message is its kind (uint32), the number of bytes that follow (uint32), and these bytes. Both programs
// run on one machine, so numbers have the byte order of this machine. Whole numbers are int32, probabilities
// float32, texts UTF-8.
//
//   request   bytes                                                             answers
//   hello     version, vocab, batch, gamma                                      done
//   begin     slot, turn, prompt length, the text                               done
//   propose   slot, step, most, drawn, drafted, the text and drafted tokens     proposal
//   observe   slot, step, accepted, the emitted tokens                          done
//
//   answer    bytes
//   done      none
//   proposal  form, number of tokens, number of rows, the tokens, for a tree the parents, the rows
//   failure   the text of an error; it is also a possible answer to every request
//
// The text begins with the prompt and ends with the pending token. `step` counts the steps of a text from 0.
// `propose` asks for a draft of at most `most` tokens, or of at most this depth if it is a tree. If tokens of
// this step have already been drawn from rows, they are the last `drafted` tokens. `drawn` is 1 if the engine
// draws tokens from rows (temperature above 0), else 0. `accepted` is the number of drafted tokens
// that the step emitted. The emitted tokens are these and the bonus or correction token, which is missing if
// the text ended before it.
//
// `form` is 0 for a chain and 1 for a tree. The parent of a token of a tree is the place of an earlier token
// of the message, or -1 for the end of the text. Row i, [vocab], is the distribution of token i after the
// text and the tokens before it. A chain has no rows, one for each token, or one row and no tokens.

namespace speclab::outside {

inline constexpr std::int32_t kProtocol = 1;  ///< the version in `hello`

enum class Kind : std::uint32_t { hello = 1, begin, propose, observe, done, proposal, failure };

/// The bytes of a message, while they are put together.
class Writer {
 public:
  void clear() { bytes_.clear(); }
  void add(std::int32_t number) { append(&number, sizeof number); }
  void add(std::span<const std::int32_t> numbers) { append(numbers.data(), numbers.size_bytes()); }
  void add(std::span<const float> numbers) { append(numbers.data(), numbers.size_bytes()); }
  std::string_view bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  std::string bytes_;
};

/// Reads the bytes of a message in order. The bytes must outlive the reader. The functions throw Error if the
/// message is too short.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::int32_t number();
  void numbers(std::size_t count, std::vector<std::int32_t>& out);
  void numbers(std::size_t count, std::vector<float>& out);
  std::size_t left() const { return bytes_.size(); }  ///< number of bytes that were not read

 private:
  void take(void* into, std::size_t count, std::size_t size);
  std::string_view bytes_;
};

/// The time at which a program stops waiting for the other one.
using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

/// Thrown at the deadline. A part of the message may have been sent or received, so the connection cannot be
/// used any more.
class DeadlinePassed : public std::exception {
 public:
  const char* what() const noexcept override { return "the other program did not answer in time"; }
};

/// Sends one message. Throws Error if the connection is broken, and DeadlinePassed.
void send_message(int socket, Kind kind, std::string_view bytes, Deadline deadline = kNoDeadline);
/// Waits for one message, sets `bytes` and returns the kind, which may be a number that Kind does not name.
/// Throws Error if the connection is broken and for a message of more than `most` bytes, and DeadlinePassed.
Kind receive_message(int socket, std::size_t most, std::string& bytes, Deadline deadline = kNoDeadline);

}  // namespace speclab::outside
