#include "core/model/heads/mlp_speculator_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/model/heads/output_tokens.h"

namespace speclab {
namespace {

constexpr float kNormEps = 1e-6f;

}  // namespace

MlpSpeculatorHeads::MlpSpeculatorHeads(const HeadCard& card, const Model& target) : count_(card.heads) {
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target.backend();
  const int hidden = target.config().hidden, inner = card.inner;
  ids_ = output_tokens(file, card, target.config());
  const int rows = ids_.empty() ? target.config().vocab : static_cast<int>(ids_.size());
  const std::string prefix = file.has("speculator.emb.0.weight") ? "speculator." : "";
  const auto name = [&](const char* module, int i) { return fmt::format("{}{}.{}", prefix, module, i); };
  for (int i = 0; i < count_; ++i) {
    Layer layer;
    const int of = card.tied ? 0 : i, projection = card.tied ? std::min(i, 1) : i;
    if (card.tied && i > 0) layer = layers_.back();  // copies share their memory
    if (of == i) {
      layer.embedding = file.linear(backend, name("emb", of), {inner}, card.vocab, Bias::kNone).parts.front();
      layer.norm = file.norm(backend, name("ln", of), NormKind::kRms, inner, kNormEps, Bias::kPresent);
      layer.head = file.linear(backend, name("head", of), {inner}, rows, Bias::kNone);
    }
    if (projection == i)
      layer.projection = file.linear(backend, name("proj", i), {i == 0 ? hidden : inner}, inner, Bias::kNone);
    layers_.push_back(std::move(layer));
  }
  const double state = std::pow(.5, .5 / count_);
  state_weight_ = static_cast<float>(state);
  embedding_weight_ = static_cast<float>(std::sqrt((1 - state * state) * inner / 2));
  if (!card.scale_input) return;
  const std::vector<float> scale(static_cast<std::size_t>(hidden), std::sqrt(.5f));
  first_norm_ = {NormKind::kRms, kNormEps, backend.keep(scale), {}};
}

const MlpSpeculatorHeads::Layer& MlpSpeculatorHeads::layer_at(int layer) const {
  SPECLAB_CHECK(layer >= 0 && layer < count_, "layer {} of {}", layer, count_);
  return layers_[static_cast<std::size_t>(layer)];
}

void MlpSpeculatorHeads::prepare(HeadRunner& runner, HeadRows& states) const {
  if (!first_norm_.weight.empty()) runner.norm(first_norm_, states);
}

void MlpSpeculatorHeads::advance(HeadRunner& runner, int layer, const HeadRows& states, TokenSpan tokens,
                                 HeadRows& to) {
  const Layer& of = layer_at(layer);
  runner.linear(of.projection, {&states}, to);
  runner.scale(state_weight_, to);
  runner.gather(of.embedding, tokens, embedded_);
  runner.scale(embedding_weight_, embedded_);
  runner.add(embedded_, to);
  runner.norm(of.norm, to);
  runner.activate(Activation::kGelu, to);
}

void MlpSpeculatorHeads::logits(HeadRunner& runner, int layer, const HeadRows& states, HeadRows& to) const {
  runner.linear(layer_at(layer).head, {&states}, to);
}

}  // namespace speclab
