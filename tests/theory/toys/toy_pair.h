#pragma once

#include <memory>

#include "core/model/toy/toy_checkpoint.h"
#include "core/theory/toys/toy_chain.h"
#include "core/theory/toys/toy_rows.h"
#include "tests/decoding/loop/loop_fixture.h"

/// A pair of toys as models and as rows, for tests that compare decoding with the closed forms.
namespace speclab::fixtures {

inline ModelPtr load_toy(const toy::MarkovTable& table, ModelPtr target = nullptr) {
  static const std::shared_ptr<Backend> backend = make_cpu_backend({1, "f32"});
  return Model::load(toy::open_toy(table, "toy"), backend, {{}, std::move(target)});
}

struct ToyPair {
  toy::MarkovTable target_table, draft_table;
  ModelPtr target, draft;

  explicit ToyPair(const toy::MarkovSpec& spec, double noise, std::int64_t noise_seed = 0)
      : target_table(toy::make_markov_table(spec)), draft_table(draft_of(spec, noise, noise_seed)) {
    target = load_toy(target_table);
    draft = load_toy(draft_table, target);
  }
  static toy::MarkovTable draft_of(toy::MarkovSpec spec, double noise, std::int64_t noise_seed) {
    spec.noise = noise;
    spec.noise_seed = noise_seed;
    return toy::make_markov_table(spec);
  }

  toy::MarkovRows p(const SamplingParams& sampling) const {
    return theory::sampled_rows(target_table, sampling);
  }
  toy::MarkovRows q(const SamplingParams& sampling) const {
    return theory::sampled_rows(draft_table, sampling);
  }
  /// The law of the first token of a text whose prompt ends with this token, [contexts].
  std::vector<double> first(const SamplingParams& sampling, Token last) const {
    const toy::MarkovRows rows = p(sampling);
    std::vector<double> law(static_cast<std::size_t>(rows.contexts()));
    law[static_cast<std::size_t>(last)] = 1;
    return theory::context_law(rows, law, 1);
  }
};

/// The counts of a record, as theory::ChainCounts has them.
inline theory::ChainCounts counts_of(const GenerationRecord& record) {
  theory::ChainCounts counts;
  for (const StepRecord& step : record.steps) {
    ++counts.steps;
    counts.emitted += step.emitted;
    counts.drafted += static_cast<double>(step.drafted.size());
    counts.accepted += step.accepted;
    for (const DraftedToken& token : step.drafted) counts.tests += token.tested ? 1 : 0;
  }
  return counts;
}

}  // namespace speclab::fixtures
