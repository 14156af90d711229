#pragma once

#include <functional>
#include <span>

#include "core/model/net/model.h"

namespace speclab {

/// Called with the index of a token of the text and the logits row [head_rows] of the position before it.
using RowVisitor = std::function<void(std::size_t, std::span<const float>)>;

/// Feeds a text after its context (at least one token) and visits the row that each of its tokens was to be
/// drawn from, in order. Throws Error when both do not fit the model's context.
void forced_rows(const Model& model, TokenSpan context, TokenSpan text, const RowVisitor& visit);

}  // namespace speclab
