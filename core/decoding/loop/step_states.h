#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/decoding/reads.h"
#include "core/model/net/session.h"

namespace speclab {

/// Hidden states of the nodes 0, 1, ... of a step, which a forward left in the backend's memory.
struct StatesThere {
  const float* states = nullptr;  ///< [layers, rows, hidden]; node i is row i
  int rows = 0;                   ///< rows of each layer, at least the number of nodes
};

/// Fetches the hidden states that a strategy reads in the steps of one sequence. In each step an executor
/// calls taps() before its forward, or take() after a forward that left the states in the backend's memory.
/// The decode loop calls fetch() after the text has grown. The buffers are kept between steps.
class StepStatesReader {
 public:
  /// Returns the taps for a forward in which node i of the draft is row rows_of_nodes[i] of the feed. Empty
  /// if the strategy reads no hidden states. Valid until the next call.
  std::span<const Tap> taps(const Reads& reads, const Session& session,
                            std::span<const std::int32_t> rows_of_nodes);
  /// Notes that the states of the layers Reads::hidden are in the backend's memory already. They must stay
  /// there until fetch(), or until the next step.
  void take(const Reads& reads, const Session& session, StatesThere there, int nodes);
  /// True if the states of this step are in the backend's memory and fetch() has not brought them to the
  /// host.
  bool waiting() const { return waiting_; }
  /// Brings the states of these nodes to the host, in one download. Call it only if waiting().
  void fetch(const Reads& reads, Session& session, std::span<const int> nodes);
  StepStates states() const;

 private:
  void forget(const Session& session);
  void expect(std::size_t layers, StatesThere there, std::size_t nodes);

  std::vector<Tap> taps_;
  std::vector<std::int32_t> nodes_;   // rows of the feed, by node
  std::vector<std::int32_t> row_of_;  // see StepStates
  std::vector<std::int32_t> wanted_;  // rows of from_
  std::vector<float> host_;           // layer by layer, [rows, width]
  std::vector<const float*> layers_;
  Buffer<float> there_;  // the states of all nodes, if taps() leaves them in the backend's memory
  StatesThere from_;     // where fetch() finds the states
  bool waiting_ = false;
  int width_ = 0;
};

}  // namespace speclab
