#pragma once

#include <functional>
#include <span>

#include "core/model/net/model.h"

namespace speclab {

/// Called with the index of a token of the text and the logits row [head_rows] of the position before it.
using RowVisitor = std::function<void(std::size_t, std::span<const float>)>;

/// Teacher forcing: feeds a text after its context (at least one token) and visits, in order, the logits row
/// from which each token of the text would be drawn. Throws Error when context and text together do not fit
/// the model's context.
void forced_rows(const Model& model, TokenSpan context, TokenSpan text, const RowVisitor& visit);

}  // namespace speclab
