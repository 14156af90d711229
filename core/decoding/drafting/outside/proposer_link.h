#pragma once

#include <string>
#include <vector>

#include "core/decoding/drafting/outside/message.h"
#include "core/decoding/drafting/outside/proposal.h"
#include "core/decoding/strategy.h"

namespace speclab::outside {

/// The environment variable with the path of the proposer's socket.
inline constexpr const char* kSocketVariable = "SPECLAB_PROPOSER";

/// A connection of the engine to a proposer (message.h). Every function throws Error if the connection
/// breaks, if the proposer does not answer in time, if it answers with a failure, and if its answer is not
/// valid. The error names the proposer and the step (if there is one), unless the connection broke or the
/// answer is too short or too long. If an answer was not in time, the connection is closed, so that a late
/// answer is not taken for the answer to another request.
class ProposerLink {
 public:
  /// Connects to the socket that kSocketVariable names. `name` is the proposer's name in errors, `gamma` the
  /// largest depth of a draft, `time_limit` the longest wait for one answer in seconds. Throws Error if the
  /// variable is not set, if its path is too long, or if nothing listens there.
  ProposerLink(const std::string& name, int vocab, int batch, int gamma, double time_limit);
  ~ProposerLink();
  ProposerLink(const ProposerLink&) = delete;
  ProposerLink& operator=(const ProposerLink&) = delete;

  /// Tells the proposer that a text begins in the slot of `sequence`.
  void begin(const Sequence& sequence);
  /// Asks for a chain of at most `most` tokens, or a tree of at most this depth, after the text and the
  /// tokens `drafted`, which were drawn in this step. The result is valid until the next call.
  const Proposal& propose(const Sequence& sequence, TokenSpan drafted, int most);
  /// Tells the proposer what became of the draft of a step.
  void observe(const Sequence& sequence, int accepted, int emitted);

 private:
  void connect();
  std::string where(int slot) const;
  /// Sends the request in writer_ and waits for an answer of the given kind, whose bytes are in answer_.
  void ask(Kind request, Kind answer, const std::string& where);
  /// Sends the request in writer_ and receives a message into answer_. Returns its kind.
  Kind exchange(Kind request, const std::string& where);

  std::string name_;
  int vocab_, gamma_;
  double time_limit_;  // s
  int socket_ = -1;
  std::vector<int> steps_;  // [batch], the number of the current step
  Writer writer_;
  std::string answer_;
  Proposal proposal_;
};

}  // namespace speclab::outside
