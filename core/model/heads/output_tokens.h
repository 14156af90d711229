#pragma once

#include <vector>

#include "core/base/token.h"
#include "core/model/heads/head_card.h"
#include "core/model/heads/head_file.h"

namespace speclab {

/// Returns the tokens of the rows of a head's own output layers, ascending; empty: all tokens of the target.
/// If the card names a vocabulary map, they are the tokens of the map. A head without a map has a row for
/// each token of the target that it was made for. If it was made for the original of an inflated twin, it has
/// no rows for the ids that the twin adds, and the result lists the tokens of the original. Throws Error like
/// HeadFile::token_ids().
std::vector<Token> output_tokens(const HeadFile& file, const HeadCard& card, const ModelConfig& target);

}  // namespace speclab
