#include "core/decoding/drafting/selection/model_scores.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {

ModelScores::ModelScores(std::span<const std::unique_ptr<DraftChain>> chains,
                         std::span<const std::shared_ptr<const Model>> models, int gamma,
                         const DraftSampling& sampling, int batch)
    : chains_(chains), gamma_(gamma), sampling_(sampling), slots_(static_cast<std::size_t>(batch)) {
  SPECLAB_CHECK(chains.size() == models.size() && gamma >= 1, "{} chains of {} models, {} tokens each",
                chains.size(), models.size(), gamma);
  for (const auto& model : models) readers_.emplace_back(model);
  for (Slot& slot : slots_) slot.accepted.resize(models.size());
}

void ModelScores::begin(const Sequence& sequence) {
  Slot& slot = slot_of(sequence);
  slot.emitted = 0;
  slot.model = -1;
  for (std::vector<double>& accepted : slot.accepted) accepted.clear();
}

void ModelScores::observe(const Sequence& sequence, const Outcome& outcome, int model) {
  Slot& slot = slot_of(sequence);
  slot.emitted = outcome.emitted;
  slot.model = model;
  slot.known.clear();
  const bool sampled = samples(sequence);
  if (sampled) emitted_laws(sequence, outcome, slot.laws);
  if (model < 0) return;
  // Node i + 1 was drawn after the first i emitted tokens. This also holds for the token that was rejected.
  const int known = std::min(outcome.draft->tree.drafted(), outcome.emitted);
  const std::size_t first = sequence.tokens.size() - static_cast<std::size_t>(outcome.emitted);
  for (int i = 0; i < known; ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i);
    const Distribution* q = outcome.draft->q_at(i + 1);
    SPECLAB_CHECK(q != nullptr, "token {} of a draft model has no q", i + 1);
    slot.known.push_back(acceptance_of(sequence, *q,
                                       sampled ? &slot.laws[static_cast<std::size_t>(i)] : nullptr,
                                       sequence.tokens[at], static_cast<std::int64_t>(at)));
  }
}

void ModelScores::read(std::span<const Sequence* const> sequences, const Score& score) {
  for (std::size_t model = 0; model < chains_.size(); ++model) {
    texts_.clear();
    for (const Sequence* sequence : sequences) {
      Slot& slot = slot_of(*sequence);
      int wanted = slot.emitted;
      if (slot.emitted > 0 && slot.model == static_cast<int>(model)) {
        wanted -= static_cast<int>(slot.known.size());
        for (const double acceptance : slot.known) add(*sequence, model, acceptance, score);
      }
      DraftCache& cache = chains_[model]->cache(*sequence);
      if (wanted <= 0 || cache.room(*sequence) <= 0) continue;
      std::span<const Distribution> p;
      if (samples(*sequence))
        p = std::span<const Distribution>(slot.laws).subspan(static_cast<std::size_t>(slot.emitted - wanted),
                                                             static_cast<std::size_t>(wanted));
      texts_.push_back({sequence, &cache, sampling_.over(sequence->sampling), wanted, p, &slot.read});
    }
    readers_[model].read(texts_);
    for (const TextReader::Text& text : texts_) {
      Slot& slot = slot_of(*text.sequence);
      // The acceptance at some tokens before these is not known, so begin anew.
      if (slot.read.size() < static_cast<std::size_t>(text.wanted)) slot.accepted[model].clear();
      for (const double acceptance : slot.read) add(*text.sequence, model, acceptance, score);
    }
  }
  for (const Sequence* sequence : sequences) slot_of(*sequence).emitted = 0;
}

// Adds the acceptance at one more token. It is the last one that the score of the place gamma tokens earlier
// needs.
void ModelScores::add(const Sequence& sequence, std::size_t model, double acceptance, const Score& score) {
  std::vector<double>& accepted = slot_of(sequence).accepted[model];
  accepted.push_back(acceptance);
  const auto gamma = static_cast<std::size_t>(gamma_);
  if (accepted.size() >= gamma) score(sequence, model, std::span<const double>(accepted).last(gamma));
}

}  // namespace speclab
