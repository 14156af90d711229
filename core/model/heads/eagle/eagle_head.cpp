#include "core/model/heads/eagle/eagle_head.h"

#include <numeric>
#include <string>

#include "core/base/error.h"
#include "core/model/heads/output_tokens.h"

namespace speclab {

EagleHead::EagleHead(const HeadCard& card, const std::shared_ptr<const Model>& target)
    : version_(card.eagle.version) {
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target->backend();
  const ModelConfig &config = target->config(), &layer = card.eagle.layer;
  const int hidden = config.hidden;
  state_width_ = static_cast<int>(card.eagle.taps.size()) * hidden;
  if (version_ == 1) {
    ids_ = config.head_ids;
    rows_ = config.head_rows();
    fc_ = file.linear(backend, "fc", {hidden, hidden}, hidden,
                      card.eagle.fc_bias ? Bias::kPresent : Bias::kNone);
    layer_ = file.decoder_layers(target->shared_backend(), layer, "layers.{}.");
    return;
  }
  ids_ = output_tokens(file, card, config);
  rows_ = ids_.empty() ? config.vocab : static_cast<int>(ids_.size());
  fc_ = file.linear(backend, "fc", {state_width_}, hidden, Bias::kNone);
  const bool numbered = layer.layers > 1 || file.has("layers.0.hidden_norm.weight");
  layer_ = file.decoder_layers(target->shared_backend(), layer, numbered ? "layers.{}." : "midlayer.");
  const std::string first = numbered ? "layers.0." : "midlayer.";
  embedding_norm_ = file.norm(backend, first + "input_layernorm", layer.norm, hidden, layer.norm_eps);
  norm_ = file.norm(backend, "norm", layer.norm, hidden, layer.norm_eps);
  out_ = file.linear(backend, "lm_head", {hidden}, rows_, Bias::kNone);
  if (card.eagle.parallel > 0 && file.has("embed_tokens.weight"))
    embedding_ = file.linear(backend, "embed_tokens", {hidden}, card.vocab, Bias::kNone).parts;
}

void EagleHead::features(HeadRunner& runner, const HeadRows& states, HeadRows& to) {
  SPECLAB_CHECK(states.width() == state_width_, "states of {}, expected {}", states.width(), state_width_);
  if (version_ == 3) {
    runner.linear(fc_, {&states}, to);
    return;
  }
  all_.resize(static_cast<std::size_t>(states.rows()));
  std::iota(all_.begin(), all_.end(), 0);
  runner.select(states, all_, to);
}

void EagleHead::forward(HeadRunner& runner, const Pairs& pairs, HeadRows& to) {
  const int hidden = runner.target().config().hidden;
  SPECLAB_CHECK(static_cast<int>(pairs.tokens.size()) == pairs.features.rows() && &pairs.features != &to,
                "{} tokens with {} features", pairs.tokens.size(), pairs.features.rows());
  if (embedding_.empty()) runner.embed(pairs.tokens, embedded_);
  else runner.gather(embedding_.front(), pairs.tokens, embedded_);
  Feed feed;
  feed.session = &pairs.session;
  feed.parents = pairs.parents;
  feed.continues = pairs.continues;
  feed.embeddings_in = Memory::kBackend;
  if (version_ == 1) {
    runner.linear(fc_, {&embedded_, &pairs.features}, input_);
    feed.embeddings = input_.data();
  } else {
    runner.norm(embedding_norm_, embedded_);
    feed.embeddings = pairs.features.data();
    feed.beside = embedded_.data();
  }
  const int count = pairs.wanted.empty() ? pairs.features.rows() : static_cast<int>(pairs.wanted.size());
  const Tap tap{kFinalNorm, runner.room(to, count, hidden), pairs.wanted, Memory::kBackend};
  feed.taps = {&tap, 1};
  layer_->forward({&feed, 1});
}

void EagleHead::logits(HeadRunner& runner, const HeadRows& features, HeadRows& to) {
  if (version_ == 1) {
    runner.logits(features, FinalNorm::kDone, to);
    return;
  }
  all_.resize(static_cast<std::size_t>(features.rows()));
  std::iota(all_.begin(), all_.end(), 0);
  runner.select(features, all_, scratch_);
  runner.norm(norm_, scratch_);
  runner.linear(out_, {&scratch_}, to);
}

}  // namespace speclab
