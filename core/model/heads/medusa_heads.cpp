#include "core/model/heads/medusa_heads.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/model/heads/output_tokens.h"

namespace speclab {

MedusaHeads::MedusaHeads(const HeadCard& card, const Model& target) {
  const HeadFile file = HeadFile::open(card.weights);
  const int hidden = target.config().hidden;
  ids_ = output_tokens(file, card, target.config());
  const int rows = ids_.empty() ? target.config().vocab : static_cast<int>(ids_.size());
  const auto out_of = [&](const std::string& prefix, int head) {
    return fmt::format("{}{}.{}", prefix, head, card.blocks);
  };
  const std::string prefix = file.has(out_of("medusa_head.", 0) + ".weight") ? "medusa_head." : "";
  int count = card.heads;
  if (card.published) {
    count = 1;  // if there is no head at all, the error names the tensor of the first one
    while (count < kMostHeads && file.has(out_of(prefix, count) + ".weight")) ++count;
  }
  for (int i = 0; i < count; ++i) {
    Head head;
    for (int block = 0; block < card.blocks; ++block)
      head.blocks.emplace_back(file, target.backend(), fmt::format("{}{}.{}", prefix, i, block),
                               std::span(&hidden, 1), hidden);
    head.out = file.linear(target.backend(), out_of(prefix, i), {hidden}, rows, Bias::kNone);
    heads_.push_back(std::move(head));
  }
}

void MedusaHeads::logits(HeadRunner& runner, int head, const HeadRows& states, HeadRows& to) {
  SPECLAB_CHECK(head >= 0 && head < count(), "head {} of {}", head, count());
  const Head& of = heads_[static_cast<std::size_t>(head)];
  const HeadRows* x = &states;
  for (const ResidualBlock& block : of.blocks) {
    HeadRows& next = x == &x_ ? y_ : x_;
    block.run(runner, {&x, 1}, next, scratch_);
    x = &next;
  }
  runner.linear(of.out, {x}, to);
}

}  // namespace speclab
