#include "core/model/heads/hydra_heads.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/model/heads/output_tokens.h"

namespace speclab {

HydraHeads::HydraHeads(const HeadCard& card, const std::shared_ptr<const Model>& target) {
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target->backend();
  const ModelConfig& config = target->config();
  const int hidden = config.hidden;
  ids_ = output_tokens(file, card, config);
  const int rows = ids_.empty() ? config.vocab : static_cast<int>(ids_.size());
  const bool dropout = card.prefix_attention && !file.has("hydra_lm_head.0.weight");
  for (int i = 0; i < card.heads; ++i) {
    Head head;
    std::vector<int> inputs(static_cast<std::size_t>(i) + 2, hidden);
    for (int block = 0; block < card.blocks; ++block) {
      head.blocks.emplace_back(
          file, backend, fmt::format("hydra_mlp.{}.{}", i, dropout ? 2 * block + 1 : block), inputs, hidden);
      inputs.assign(1, hidden);
    }
    head.out = file.linear(backend, fmt::format("hydra_lm_head.{}{}", i, dropout ? ".1" : ""), {hidden}, rows,
                           Bias::kPresent);
    heads_.push_back(std::move(head));
  }
  if (!card.prefix_attention) return;
  const std::string prefix = "prefix_embeding_layer.";
  prefix_ = file.decoder_layers(target->shared_backend(), decoder_layers_of(config), prefix + "layers.{}.");
  prefix_norm_ = file.norm(backend, prefix + "norm", config.norm, hidden, config.norm_eps);
}

void HydraHeads::logits(HeadRunner& runner, int head, std::span<const HeadRows* const> inputs, HeadRows& to) {
  SPECLAB_CHECK(head >= 0 && head < count(), "head {} of {}", head, count());
  const Head& of = heads_[static_cast<std::size_t>(head)];
  of.blocks.front().run(runner, inputs, x_, scratch_);
  const HeadRows* x = &x_;
  for (std::size_t block = 1; block < of.blocks.size(); ++block) {
    HeadRows& next = x == &x_ ? y_ : x_;
    of.blocks[block].run(runner, {&x, 1}, next, scratch_);
    x = &next;
  }
  runner.linear(of.out, {x}, to);
}

}  // namespace speclab
