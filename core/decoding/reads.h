#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/net/taps.h"

namespace speclab {

/// The results of the target that a strategy reads (Strategy::reads()). The decode loop fetches exactly
/// these. If a device verifies a step, the logits rows stay on the device, and the hidden states that a
/// strategy reads come to the host after the verdict. For a strategy that reads rows, the loop chooses an
/// executor that brings the rows to the host and verifies there.
struct Reads {
  /// The nodes of a draft whose hidden states are fetched.
  enum class Nodes : std::uint8_t {
    kAll,        ///< all nodes; their states come with the forward, or after the verdict of a device
    kCommitted,  ///< the pending token and the accepted nodes that the step commits; fetched after the
                 ///< verdict
  };
  bool rows = false;  ///< whether to fetch the logits rows of each step, see Outcome::rows
  std::vector<int> hidden =
      {};  ///< layers whose hidden states are fetched, numbered as Tap::layer (core/model/net/taps.h)
  Nodes nodes = Nodes::kAll;
  /// Whether to fetch the same layers for the whole prompt, for Strategy::observe_prompt(). The prompt is
  /// then prefilled anew for each generation; cases do not share the prefill.
  bool prompt = false;
};

/// Hidden states of the nodes of one step.
struct StepStates {
  std::span<const float* const> layers = {};  ///< for each entry of Reads::hidden: [rows, width]
  std::span<const std::int32_t> row_of = {};  ///< [nodes], row of each node; -1: not fetched
  int width = 0;
  /// The state of a node at entry `layer` of Reads::hidden. Throws Bug for a node that was not fetched.
  std::span<const float> of(std::size_t layer, int node) const;
};

}  // namespace speclab
