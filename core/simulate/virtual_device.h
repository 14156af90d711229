#pragma once

#include <optional>
#include <string>

#include "core/theory/cost.h"

namespace speclab::simulate {

/// A forward whose time is wanted.
struct Forward {
  std::string model;  ///< "" for the target, else the name of a draft model in the run
  std::optional<theory::DecoderShape> shape = {};  ///< absent if the files of the model are not here
  int rows = 1;                                    ///< rows of each sequence; all have logits
  double context = 0;                              ///< committed tokens of each sequence
  int batch = 1;                                   ///< sequences that share the forward
};

/// A device that is not here: it gives the time of forwards without running them. Every number that comes
/// from it is simulated and must be shown as such. Subclasses: Roofline (from a data sheet), LinearTimes
/// (from a published fit), RowTables (from times that were measured on the device).
class VirtualDevice {
 public:
  virtual ~VirtualDevice() = default;
  /// Time of a forward in nanoseconds. Throws Error if require_forward() does, and if the device cannot price
  /// the forward, for example because a table lacks the model or a roofline lacks the shape.
  virtual double forward_ns(const Forward& forward) const = 0;
  /// Time of a step that is spent outside the forwards: sampling, acceptance, bookkeeping. It is the same
  /// for an autoregressive and for a speculative step.
  virtual double step_ns() const = 0;
};

/// Throws Error unless rows and batch are at least 1, rows * batch is at most 2^30, and the context is finite
/// and not negative.
void require_forward(const Forward& forward);

}  // namespace speclab::simulate
