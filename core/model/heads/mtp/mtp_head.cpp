#include "core/model/heads/mtp/mtp_head.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace speclab {
namespace {

/// Refuses a module with tensors of a layer that the engine does not compute.
void require_dense_module(const HeadFile& file, const std::string& at) {
  for (const char* name : {"mlp.gate.weight", "mlp.router.weight", "mlp.experts.0.gate_proj.weight",
                           "mlp.experts.gate_up_proj"}) {
    if (!file.has(at + name)) continue;
    throw Error({fmt::format("{}: tensor {}{}", file.path().string(), at, name), "a mixture of experts",
                 "a dense feed-forward (mlp.gate_proj, mlp.up_proj, mlp.down_proj)",
                 "Modules with experts are not supported; use those of a dense model."});
  }
  for (const char* name : {"self_attn.kv_a_proj_with_mqa.weight", "self_attn.q_a_proj.weight"}) {
    if (!file.has(at + name)) continue;
    throw Error({fmt::format("{}: tensor {}{}", file.path().string(), at, name), "latent attention (MLA)",
                 "attention with q_proj, k_proj, v_proj and o_proj",
                 "Modules with latent attention are not supported; use those of another model."});
  }
}

/// Writes a copy of all rows to `to`.
void copy_rows(HeadRunner& runner, const HeadRows& from, HeadRows& to) {
  const HeadRows* const parts[] = {&from};
  runner.stack(parts, to);
}

}  // namespace

MtpHead::MtpHead(const HeadCard& card, const std::shared_ptr<const Model>& target)
    : state_first_(card.mtp.state_first),
      passes_normed_(card.mtp.passes_normed),
      layer_(card.mtp.layer),
      rows_(target->config().head_rows()),
      ids_(target->config().head_ids) {
  const HeadFile file = HeadFile::open(card.weights);
  for (int module = 0; module < card.mtp.modules; ++module)
    modules_.push_back(load(file, fmt::format("layers.{}.", module), *target));
  if (card.vocabulary_map.empty()) return;
  ids_ = file.token_ids(card.vocabulary_map, card.vocab);
  rows_ = static_cast<int>(ids_.size());
  out_ = file.linear(target->backend(), "lm_head", {target->config().hidden}, rows_, Bias::kNone);
}

MtpHead::Module MtpHead::load(const HeadFile& file, const std::string& at, const Model& target) const {
  require_dense_module(file, at);
  Backend& backend = target.backend();
  const int hidden = target.config().hidden;
  const auto norm = [&](const char* name) {
    return file.norm(backend, at + name, layer_.norm, hidden, layer_.norm_eps);
  };
  Module module;
  module.embedding_norm = norm("enorm");
  module.state_norm = norm("hnorm");
  module.projection = file.linear(backend, at + "eh_proj", {hidden, hidden}, hidden, Bias::kNone);
  module.layer = file.decoder_layers(target.shared_backend(), layer_, at);
  module.final_norm = norm("shared_head.norm");
  return module;
}

void MtpHead::forward(HeadRunner& runner, int module, const Pairs& pairs, HeadRows& to) {
  SPECLAB_CHECK(static_cast<int>(pairs.tokens.size()) == pairs.states.rows() && &pairs.states != &to,
                "{} tokens with {} states", pairs.tokens.size(), pairs.states.rows());
  Module& of = modules_[static_cast<std::size_t>(module)];
  runner.embed(pairs.tokens, embedded_);
  runner.norm(of.embedding_norm, embedded_);
  copy_rows(runner, pairs.states, states_);
  runner.norm(of.state_norm, states_);
  if (state_first_) runner.linear(of.projection, {&states_, &embedded_}, input_);
  else runner.linear(of.projection, {&embedded_, &states_}, input_);
  Feed feed;
  feed.session = &pairs.session;
  feed.parents = pairs.parents;
  feed.continues = pairs.continues;
  feed.embeddings = input_.data();
  feed.embeddings_in = Memory::kBackend;
  const int count = pairs.wanted.empty() ? pairs.states.rows() : static_cast<int>(pairs.wanted.size());
  const Tap tap{kFinalNorm, runner.room(to, count, runner.target().config().hidden), pairs.wanted,
                Memory::kBackend};
  feed.taps = {&tap, 1};
  of.layer->forward({&feed, 1});
  if (passes_normed_) runner.norm(of.final_norm, to);
}

void MtpHead::logits(HeadRunner& runner, int module, const HeadRows& outputs, HeadRows& to) {
  copy_rows(runner, outputs, normed_);
  if (!passes_normed_) runner.norm(modules_[static_cast<std::size_t>(module)].final_norm, normed_);
  if (out_.parts.empty()) runner.logits(normed_, FinalNorm::kDone, to);
  else runner.linear(out_, {&normed_}, to);
}

}  // namespace speclab
