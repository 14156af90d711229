#include "core/model/heads/pass_embeddings.h"

#include <numeric>
#include <span>

#include "core/base/error.h"

namespace speclab {

PassEmbeddings::PassEmbeddings(const HeadCard& card, const Model& target)
    : table_(HeadFile::open(card.weights)
                 .linear(target.backend(), "look_ahead", {target.config().hidden}, card.heads, Bias::kNone)
                 .parts.front()),
      numbers_(static_cast<std::size_t>(card.heads)) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

void PassEmbeddings::inputs(HeadRunner& runner, Token pending, int lookahead, HeadRows& to) {
  SPECLAB_CHECK(lookahead >= 0 && lookahead <= count(), "{} of {} look-ahead embeddings", lookahead, count());
  if (lookahead == 0) {
    runner.embed({&pending, 1}, to);
    return;
  }
  runner.embed({&pending, 1}, embedded_);
  runner.gather(table_, std::span<const Token>(numbers_).first(static_cast<std::size_t>(lookahead)),
                lookahead_);
  const HeadRows* const parts[] = {&embedded_, &lookahead_};
  runner.stack(parts, to);
}

}  // namespace speclab
