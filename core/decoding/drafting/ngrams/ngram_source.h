#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/ngrams/ngram_estimate.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Where the counts of n-grams come from: the running text, a file, or both. With both, each context uses the
/// one in which a longer ending of the context occurred (the text if equal).
enum class NgramCountsOf { online, file, both };

/// Options of NgramSource, described in fields().
struct NgramSourceOptions {
  int order = 3;
  NgramSmoothing smoothing = NgramSmoothing::modified_kneser_ney;
  NgramCountsOf counts = NgramCountsOf::online;
  std::string file{};
  int known = 1;
  /// Every name begins with `prefix`.
  void fields(OptionVisitor& visit, const std::string& prefix = "");
};

/// A smoothed n-gram model as a source of drafted tokens: the law (distribution) of the token after a text,
/// and draws from it. It counts the n-grams of each running text (prompt and output), has counts from a
/// file, or both. Strategies that draft from n-grams use this class.
///
/// Use: begin(), catch_up() after each step, and for each drafted token condition() and add(). Nothing is
/// remembered of earlier requests.
class NgramSource {
 public:
  /// Opens the file if `options.counts` needs one. `owner` is the strategy, for messages. `prefix` is the
  /// same as in NgramSourceOptions::fields(). Throws Error when the file is needed and missing, when it is no
  /// n-gram model, and when it was made for another vocabulary or tokenizer.
  NgramSource(const NgramSourceOptions& options, const Resources& resources, const std::string& owner,
              const std::string& prefix = "");

  void begin(const Sequence& sequence);     ///< forgets the slot's earlier text, counts this one
  void catch_up(const Sequence& sequence);  ///< counts the tokens that are new in the text

  /// Sets the law: the distribution of the token after the text and `path`. The text must have been counted;
  /// the path is not counted. Returns NgramEstimate::known(): the number of tokens of the longest suffix of
  /// text and path that some token followed.
  int condition(const Sequence& sequence, TokenSpan path);
  /// Whether a context with this many known tokens is enough to draft. The option `known` sets the least
  /// number. The answer depends on the context alone and not on the token that would be drawn. So drafts that
  /// stop here keep their law.
  bool enough(int known) const { return known >= least_known_; }

  /// Draws a token from the law of the last condition(), with the same `path`, and adds it below `parent`.
  /// `draw(q)` draws it from q, which is the law after processors and `sampling`. The node gets this q. The
  /// node's confidence is the token's probability in q, or in the law itself if q is one-hot. Without
  /// processors, a draft at temperature 0 takes the best token without computing q, so `draw` is not called
  /// and the node is one-hot. Returns the node, or nothing if the processors ban every token with mass in the
  /// law.
  template <class Draw>
  std::optional<int> add(const Sequence& sequence, TokenSpan path, const SamplingParams& sampling,
                         Draft& draft, int parent, const Draw& draw) {
    if (sampling.temperature <= 0 && sequence.processors == nullptr) {
      const Token token = best();
      return draft.add(token, parent, Draft::kOneHot, static_cast<float>(prob(token)));
    }
    const std::span<const float> row = logits(sequence, path);
    if (row.empty()) return std::nullopt;
    int q_index = Draft::kOneHot;
    Distribution& q = draft.new_q(&q_index);
    q.assign_logits(row, sampling, {}, vocab_);
    const Token token = draw(q);
    return draft.add(token, parent, q_index, static_cast<float>(q.one_hot() ? prob(token) : q.prob(token)));
  }

  Token best() const;              ///< the most probable token of the law
  double prob(Token token) const;  ///< by the law
  double entropy();                ///< of the law, in nats; a pass over the vocabulary

 private:
  std::span<const float> logits(const Sequence& sequence, TokenSpan path);
  NgramCounts& counts_of(const Sequence& sequence) {
    return *counts_[static_cast<std::size_t>(sequence.slot)];
  }

  int vocab_, least_known_;
  std::optional<NgramFile> file_;
  std::optional<NgramEstimate<NgramCounts>> by_text_;
  std::optional<NgramEstimate<NgramFile>> by_file_;
  std::vector<std::unique_ptr<NgramCounts>> counts_;  // [batch]
  bool from_file_ = false;                            // the law is by_file_
  std::vector<Token> context_;
  std::vector<float> row_, processed_;  // [vocab]
  Distribution law_;                    // scratch of entropy()
};

}  // namespace speclab
