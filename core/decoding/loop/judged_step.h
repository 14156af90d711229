#pragma once

#include <cstdint>
#include <span>

#include "core/base/token.h"
#include "core/decoding/rules/accept.h"

namespace speclab {

/// A step after its draft was judged, for LoopOptions::on_judged. Valid during the call.
struct JudgedStep {
  const Draft& draft;
  const TargetRows& rows;         ///< of the pending token and of every candidate
  std::span<const int> accepted;  ///< the emitted part of the accepted path, from depth 1 on
  int emitted;                    ///< tokens that were emitted
  TokenSpan eos;                  ///< tokens that end the text; empty if they are ignored
  const Coins& coins;             ///< of the sequence
  std::int64_t position;          ///< of the pending token in the text
};

}  // namespace speclab
