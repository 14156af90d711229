#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/decoding/reads.h"
#include "core/model/net/session.h"

namespace speclab {

/// Fetches the hidden states that a strategy reads in the steps of one sequence. An executor calls taps()
/// before its forward. The decode loop calls fetch() after the text has grown. The buffers are kept between
/// steps.
class StepStatesReader {
 public:
  /// Returns the taps for a forward in which node i of the draft is row rows_of_nodes[i] of the feed. Empty
  /// if the strategy reads no hidden states. Valid until the next call.
  std::span<const Tap> taps(const Reads& reads, const Session& session,
                            std::span<const std::int32_t> rows_of_nodes);
  /// Brings the states of the committed nodes to the host. Call it for strategies that read only these states
  /// (Reads::Nodes::kCommitted). `committed`: node 0 and the accepted nodes that the step committed, in
  /// order.
  void fetch(const Reads& reads, Session& session, std::span<const int> committed);
  StepStates states() const;

 private:
  std::vector<Tap> taps_;
  std::vector<std::int32_t> nodes_;   // rows of the feed, by node
  std::vector<std::int32_t> row_of_;  // see StepStates
  std::vector<std::int32_t> wanted_;
  std::vector<float> host_;  // layer by layer, [rows, width]
  std::vector<const float*> layers_;
  Buffer<float> there_;  // states of all nodes in the backend's memory, if only committed ones are fetched
  int width_ = 0;
};

}  // namespace speclab
