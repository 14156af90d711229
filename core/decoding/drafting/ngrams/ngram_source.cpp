#include "core/decoding/drafting/ngrams/ngram_source.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/decoding/rows/processors.h"

namespace speclab {

void NgramSourceOptions::fields(OptionVisitor& visit, const std::string& prefix) {
  visit(prefix + "order", order, Range<int>{1, NgramCounts::kMostOrder},
        "longest n-gram: 1 unigram, 2 bigram, 3 trigram; a file of a lower order gives n-grams of its own "
        "order");
  visit(prefix + "smoothing", smoothing,
        {{NgramSmoothing::katz, "katz"},
         {NgramSmoothing::kneser_ney, "kneser_ney"},
         {NgramSmoothing::modified_kneser_ney, "modified_kneser_ney"}},
        "how counts become probabilities");
  visit(
      prefix + "counts", counts,
      {{NgramCountsOf::online, "online"}, {NgramCountsOf::file, "file"}, {NgramCountsOf::both, "both"}},
      "counts of prompt and output, of the file, or of whichever knows the longer context (the text if both "
      "are equal)");
  visit(prefix + "file", file, "file made by `speclab ngram build`");
  visit(prefix + "known", known, Range<int>{0, NgramCounts::kMostOrder - 1},
        "draft only after a sequence of this many tokens that occurred before; values above order - 1 count "
        "as order - 1");
}

NgramSource::NgramSource(const NgramSourceOptions& options, const Resources& resources,
                         const std::string& owner, const std::string& prefix)
    : vocab_(resources.target->config().vocab), least_known_(std::min(options.known, options.order - 1)) {
  if (options.counts != NgramCountsOf::online) {
    if (options.file.empty()) {
      throw Error({fmt::format("{}: {}file", owner, prefix), "none",
                   fmt::format("an n-gram model, because of \"{}counts\": \"{}\"", prefix,
                               options.counts == NgramCountsOf::file ? "file" : "both"),
                   fmt::format("Build one with `speclab ngram build`, or set {}counts to online.", prefix)});
    }
    file_.emplace(NgramFile::open(options.file));
    file_->require(vocab_, resources.target->tokenizer_sha256());
    by_file_.emplace(vocab_, std::min(options.order, file_->order()), options.smoothing);
    by_file_->freeze(*file_);
  }
  if (options.counts != NgramCountsOf::file) {
    by_text_.emplace(vocab_, options.order, options.smoothing);
    for (int i = 0; i < resources.batch; ++i) {
      counts_.push_back(std::make_unique<NgramCounts>(vocab_, options.order));
      counts_.back()->reserve(static_cast<std::size_t>(resources.capacity) + 1);
    }
  }
  row_.resize(static_cast<std::size_t>(vocab_));
  processed_.resize(row_.size());
}

void NgramSource::begin(const Sequence& sequence) {
  if (!by_text_) return;
  counts_of(sequence).clear();
  catch_up(sequence);
}

void NgramSource::catch_up(const Sequence& sequence) {
  if (!by_text_) return;
  NgramCounts& counts = counts_of(sequence);
  for (std::size_t at = counts.tokens(); at < sequence.tokens.size(); ++at)
    counts.append(sequence.tokens[at]);
}

int NgramSource::condition(const Sequence& sequence, TokenSpan path) {
  constexpr auto kMost = static_cast<std::size_t>(NgramCounts::kMostOrder);
  const TokenSpan text = sequence.tokens, ending = text.last(std::min(text.size(), kMost));
  context_.assign(ending.begin(), ending.end());
  context_.insert(context_.end(), path.begin(), path.end());
  int known = -1;
  if (by_text_) {
    by_text_->condition(counts_of(sequence), context_);
    known = by_text_->known();
  }
  from_file_ = false;
  if (by_file_) {
    by_file_->condition(*file_, context_);
    from_file_ = by_file_->known() > known;
    known = std::max(known, by_file_->known());
  }
  return known;
}

Token NgramSource::best() const { return from_file_ ? by_file_->best() : by_text_->best(); }

double NgramSource::prob(Token token) const {
  return from_file_ ? by_file_->prob(token) : by_text_->prob(token);
}

double NgramSource::entropy() {
  if (from_file_) by_file_->log_probabilities(row_);
  else by_text_->log_probabilities(row_);
  law_.assign_logits(row_, {.temperature = 1, .top_k = 0, .top_p = 1}, {}, vocab_);
  return law_.entropy();
}

// The law as logits, with the processors applied. Empty if no token is left: Katz may give all mass to tokens
// that are banned.
std::span<const float> NgramSource::logits(const Sequence& sequence, TokenSpan path) {
  if (from_file_) by_file_->log_probabilities(row_);
  else by_text_->log_probabilities(row_);
  if (sequence.processors == nullptr) return row_;
  sequence.processors->apply(row_, {}, sequence.tokens, path, processed_);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (std::all_of(processed_.begin(), processed_.end(), [](float log) { return log == kNever; })) return {};
  return processed_;
}

}  // namespace speclab
