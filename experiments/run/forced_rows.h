#pragma once

#include <functional>
#include <span>

#include "core/model/net/model.h"

namespace speclab {

/// A function that takes the index of a token of the text and the logits row [head_rows] of the position
/// before that token.
using RowVisitor = std::function<void(std::size_t, std::span<const float>)>;

/// Runs the model over a fixed text (teacher forcing). Feeds `context`, which has at least one token, and
/// then `text`. For each token of the text, in order, calls `visit` with the logits row from which the token
/// would be drawn. Throws Error when context and text together do not fit the model's context.
void forced_rows(const Model& model, TokenSpan context, TokenSpan text, const RowVisitor& visit);

}  // namespace speclab
