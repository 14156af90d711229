#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/selection/text_reader.h"

namespace speclab {

/// Follows the texts of a batch with several draft models and tells for each place of a text how often the
/// tokens that a model would draft there are accepted, whichever drafter drafted. A model that did not draft
/// reads the emitted tokens in one forward (TextReader). A model that drafted knows its rows at the emitted
/// tokens; if all its tokens were accepted, it still reads the last one.
///
/// The acceptance of a token that the model draws from q at a place is sum min(p, q), where p is the target's
/// distribution there; acceptance_of() describes the simpler cases, greedy and coupled sampling. p comes from
/// the rows of the step, so the strategy must read them (Reads::rows).
class ModelScores {
 public:
  /// Gets the acceptance of the tokens of a draft of `gamma` tokens at a place of the text, each one given
  /// that the tokens before it were accepted.
  using Score =
      std::function<void(const Sequence& sequence, std::size_t model, std::span<const double> acceptance)>;

  /// `chains[i]` drafts with `models[i]`. The chains must live as long as this object. `sampling`: the
  /// sampling of the chains.
  ModelScores(std::span<const std::unique_ptr<DraftChain>> chains,
              std::span<const std::shared_ptr<const Model>> models, int gamma, const DraftSampling& sampling,
              int batch);
  void begin(const Sequence& sequence);  ///< starts a text in its slot
  /// Keeps what the last step tells. `model` is the model that drafted in it, or -1 if none did.
  void observe(const Sequence& sequence, const Outcome& outcome, int model);
  /// Lets the models read the tokens of the last step. Calls `score` for each place that is now followed by
  /// gamma tokens, once for each model and place. Call it in draft(), before anything is drafted. A model
  /// whose context is full gets no more scores.
  void read(std::span<const Sequence* const> sequences, const Score& score);

 private:
  struct Slot {
    int emitted = 0;                 // tokens of the last step
    int model = -1;                  // the model that drafted in this step
    std::vector<double> known;       // acceptance of that model at the first emitted tokens
    std::vector<Distribution> laws;  // [emitted] of the target, see samples()
    std::vector<std::vector<double>>
        accepted;              // [models], acceptance at the tokens of the text that were scored
    std::vector<double> read;  // scratch
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }
  /// Whether the acceptance depends on the target's row.
  static bool samples(const Sequence& sequence) {
    return sequence.sampling.temperature > 0 && !sequence.coupled;
  }
  void add(const Sequence& sequence, std::size_t model, double acceptance, const Score& score);

  std::span<const std::unique_ptr<DraftChain>> chains_;
  std::vector<TextReader> readers_;  // [models]
  int gamma_;
  DraftSampling sampling_;
  std::vector<Slot> slots_;  // [batch]
  std::vector<TextReader::Text> texts_;
};

}  // namespace speclab
