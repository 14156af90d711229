#pragma once

#include <span>

#include "core/base/token.h"
#include "core/decoding/rules/accept.h"

namespace speclab {

/// A step after its draft was judged, for LoopOptions::on_judged. Valid during the call.
struct JudgedStep {
  const Draft& draft;
  const TargetRows& rows;         ///< of the pending token and of every candidate
  std::span<const int> accepted;  ///< the drafted nodes that were emitted, from depth 1 on
  int emitted;                    ///< tokens that were emitted
  TokenSpan eos;                  ///< tokens that end the text; empty if they are ignored
};

}  // namespace speclab
