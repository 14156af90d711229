#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/decoding/strategy.h"

namespace speclab {

/// Decides at an exit whether a token leaves the layers there. CALM (Schuster et al. 2022) has two of these
/// measures and a trained classifier.
enum class ExitWhen {
  probability,  ///< the output head gives its best token at least this probability at temperature 1 (CALM
                ///< takes the difference between the two largest probabilities)
  agreement,    ///< the output head has the same best token as at the exit before
  similarity,   ///< the hidden state has at least this cosine with the state at the exit before
};

struct ExitSettings {
  std::vector<int> exits;  ///< numbers of layers after which a token may leave: at least one number,
                           ///< ascending, from 1 to the target's number of layers - 1
  ExitWhen when = ExitWhen::probability;
  double threshold = 0;  ///< of probability or similarity
};

/// Runs rows of drafts through the target's first layers up to an exit that is chosen for each token: the
/// first one at which `when` holds, or the last one. The choice depends on the text and the drafted tokens
/// before the new one, and on no coin. So the row at the exit is a distribution q like any other.
///
/// If a token goes further than earlier tokens of the draft, the rows of those tokens run to the same exit in
/// the same forward. So each row finds the K/V of the tokens before it in every layer. (CALM instead copies
/// the hidden state of a token that stopped.) The rows stay in flight with their hidden states, and the
/// verifying forward goes on from there (TargetUse::exits).
///
/// A token costs the layers that it runs, and one output head at each exit that it reached. With
/// `similarity` the head is needed only at the last exit that the token reached. With `agreement` and
/// `similarity` no token leaves at the first of several exits, because no exit comes before it.
class TokenExits {
 public:
  TokenExits(const ExitSettings& settings, const Resources& resources);
  ~TokenExits();
  /// Starts a sequence in its slot.
  void begin(const Sequence& sequence);

  /// The next row of a draft.
  struct Row {
    const Sequence* sequence;
    /// The pending token and the drafted tokens. The last one is new; the others are in flight, as a chain.
    TokenSpan tokens;
    float* logits;  ///< out, [head_rows]: the row at the exit
  };
  /// Runs these rows, of different sequences, together.
  void run(std::span<const Row> rows);

 private:
  struct Way;
  void feed(const Row& row, Way& way, std::size_t level);
  bool leaves(const Row& row, Way& way, std::size_t level);
  void apply_head(const Row& row, Way& way);

  ExitSettings settings_;
  Resources resources_;
  std::vector<std::unique_ptr<Way>> ways_;  // [batch]
  std::vector<const Row*> waiting_;
  std::vector<Feed> feeds_;
  Distribution soft_;
};

}  // namespace speclab
