#include "core/decoding/drafting/selection/text_reader.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/decoding/rows/processors.h"

namespace speclab {

void emitted_laws(const Sequence& sequence, const Outcome& outcome, std::vector<Distribution>& laws) {
  thread_local std::vector<float> processed;
  const auto count = static_cast<std::size_t>(outcome.emitted),
             vocab = static_cast<std::size_t>(outcome.rows.vocab);
  const TokenSpan text = sequence.tokens, before = text.first(text.size() - count),
                  emitted = text.last(count);
  if (laws.size() < count) laws.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto node = static_cast<std::size_t>(i == 0 ? 0 : outcome.acceptance->path[i - 1]);
    SPECLAB_CHECK(node < outcome.rows.row_of.size() && outcome.rows.row_of[node] >= 0, "no row of node {}",
                  node);
    const auto row = static_cast<std::size_t>(outcome.rows.row_of[node]);
    std::span<const float> logits{outcome.rows.logits + row * vocab, vocab};
    if (sequence.processors != nullptr) {
      processed.resize(vocab);
      sequence.processors->apply(logits, {}, before, emitted.first(i), processed);
      logits = processed;
    }
    laws[i].assign_logits(logits, sequence.sampling, {}, outcome.rows.vocab);
  }
}

double acceptance_of(const Sequence& sequence, const Distribution& q, const Distribution* p, Token token,
                     std::int64_t position) {
  if (sequence.coupled) return q.sample_coupled(sequence.coins, position) == token ? 1 : 0;
  return p != nullptr ? overlap(*p, q) : q.prob(token);
}

void TextReader::read(std::span<const Text> texts) {
  if (texts.empty()) return;
  if (readings_.size() < texts.size()) readings_.resize(texts.size());
  const ModelConfig& config = model_->config();
  const auto head_rows = static_cast<std::size_t>(config.head_rows());
  feeds_.clear();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    Reading& reading = readings_[i];
    const TokenSpan tokens = text.sequence->tokens;
    text.cache->catch_up(tokens.first(tokens.size() - 1),
                         static_cast<std::size_t>(text.sequence->prompt_length), reading.feed);
    const auto missing = static_cast<std::int32_t>(reading.feed.size()),
               known = std::min(missing, text.wanted);
    reading.parents.resize(reading.feed.size());
    std::iota(reading.parents.begin(), reading.parents.end(), -1);
    reading.rows.resize(static_cast<std::size_t>(known));
    std::iota(reading.rows.begin(), reading.rows.end(), missing - known);
    reading.logits.resize(static_cast<std::size_t>(known) * head_rows);
    feeds_.push_back(
        {&text.cache->session(), reading.feed, reading.parents, reading.rows, reading.logits.data()});
  }
  model_->forward(feeds_);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    const Sequence& sequence = *text.sequence;
    text.cache->keep(readings_[i].feed);
    text.acceptance->clear();
    const std::size_t size = sequence.tokens.size(), known = readings_[i].rows.size();
    for (std::size_t k = 0; k < known; ++k) {
      const std::size_t at = size - known + k;  // the token that this row predicts
      std::span<const float> logits{readings_[i].logits.data() + k * head_rows, head_rows};
      if (sequence.processors != nullptr) {
        processed_.resize(head_rows);
        sequence.processors->apply(logits, config.head_ids, TokenSpan(sequence.tokens).first(at), {},
                                   processed_);
        logits = processed_;
        // The processors may ban all tokens of a reduced vocabulary. Then there is nothing to draft.
        if (std::ranges::all_of(logits, [](float logit) { return std::isinf(logit) && logit < 0; })) {
          text.acceptance->push_back(0);
          continue;
        }
      }
      q_.assign_logits(logits, text.sampling, config.head_ids, config.vocab);
      const Distribution* p = text.p.empty() ? nullptr : &text.p[text.p.size() - known + k];
      text.acceptance->push_back(
          acceptance_of(sequence, q_, p, sequence.tokens[at], static_cast<std::int64_t>(at)));
    }
  }
}

}  // namespace speclab
