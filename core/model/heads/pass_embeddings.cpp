#include "core/model/heads/pass_embeddings.h"

namespace speclab {

PassEmbeddings::PassEmbeddings(const HeadCard& card, const Model& target)
    : embeddings_(HeadFile::open(card.weights), "look_ahead", card.heads, target) {}

}  // namespace speclab
