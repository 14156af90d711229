#include "core/model/heads/output_tokens.h"

#include <cstddef>
#include <numeric>

namespace speclab {

std::vector<Token> output_tokens(const HeadFile& file, const HeadCard& card, const ModelConfig& target) {
  if (!card.vocabulary_map.empty()) {
    return card.published ? file.token_offsets(card.vocabulary_map, "t2d", card.vocab)
                          : file.token_ids(card.vocabulary_map, card.vocab);
  }
  if (card.vocab == target.vocab) return {};
  std::vector<Token> all(static_cast<std::size_t>(card.vocab));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace speclab
