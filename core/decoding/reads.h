#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/net/taps.h"

namespace speclab {

/// What a strategy reads of the target (Strategy::reads()). The decode loop fetches this and nothing more. A
/// step that a device judges by itself brings nothing to the host, so a strategy that reads anything in its
/// steps is decoded by an executor that does.
struct Reads {
  /// Of which nodes of a draft the hidden states are wanted.
  enum class Nodes : std::uint8_t {
    kAll,        ///< of all: they come with the forward
    kCommitted,  ///< of the pending token and the accepted nodes that were emitted: fetched after the verdict
  };
  bool rows = false;  ///< the rows of logits of each step, see Outcome::rows
  std::vector<int> hidden =
      {};  ///< layers whose hidden states are wanted, as Tap::layer; see Outcome::states
  Nodes nodes = Nodes::kAll;
  /// The same layers for the whole prompt: Strategy::observe_prompt(). Such a prompt is prefilled for each
  /// generation anew and not shared between cases.
  bool prompt = false;
};

/// Hidden states of the nodes of one step.
struct StepStates {
  std::span<const float* const> layers = {};  ///< one for each of Reads::hidden: [rows, width]
  std::span<const std::int32_t> row_of = {};  ///< [nodes], the row of a node; -1: not fetched
  int width = 0;
  /// The state of a node at entry `layer` of Reads::hidden. A node that was not asked for is a bug.
  std::span<const float> of(std::size_t layer, int node) const;
};

}  // namespace speclab
