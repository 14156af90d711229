// Staged speculation: the draft model drafts with the help of a second stage, a draft of the draft. The
// second stage guesses which tokens the draft model will draw. The guesses are fed together with the node
// that the draft model needs next, in one forward. Where a guess is right, the rows below it are there
// already. A chain of gamma tokens then costs the draft model fewer than gamma forwards.
//
// The second stage decides only which rows are computed together. Each token is drawn from the draft model's
// own row with the coin of its node, whatever was guessed. So the drafts are those of tree_speculation with
// the same widths and "budget": "fixed", bit for bit, at every temperature, and each node has the q of the
// draft model.
//
// Paper:       Spector and Re 2023, "Accelerating LLM Inference with Staged Speculative Decoding" (arXiv
//              2308.04623). The second stage there, a Katz trigram model, is drawn from and verified by
//              rejection; here a guess counts when it equals the token that the draft model draws.
// Draft cost:  one forward of the draft model for the pending token, and one for each level with a token that
//              must be fed and was not guessed. The guesses add rows to these forwards. Each guess of a
//              second model costs a forward of it; a guess of the n-gram model costs microseconds.
// Loses when:  the guesses are often wrong, or rows of the draft model are not free.

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/decoding/drafting/ngrams/ngram_source.h"
#include "core/decoding/drafting/tree_growth.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostFed = 64;  // see DraftLevels::look_ahead()

struct Options {
  std::vector<int> widths = {1, 1, 1, 1, 1};
  TreeGrowthOptions growth;
  int ahead = 4;
  int branches = 1;
  int order = 3;
  int known = 1;
  void fields(OptionVisitor& visit) {
    visit("widths", widths, Range<int>{1, TreeShape::kMostDrafted},
          "number of children of each node, one entry per depth; [1, 1, 1, 1] is a chain of 4 tokens");
    growth.fields(visit);
    visit("ahead", ahead, Range<int>{0, DraftLevel::kMostGuesses},
          "tokens that the second stage guesses below a node; 0: no second stage");
    visit("branches", branches, Range<int>{1, kMostFed},
          "the second stage guesses below this many nodes of a level, the first ones");
    visit("order", order, Range<int>{1, NgramCounts::kMostOrder},
          "largest n-gram of the second stage, a Katz model of the text so far; not used with a second draft "
          "model");
    visit("known", known, Range<int>{0, NgramCounts::kMostOrder - 1},
          "least number of tokens of the context that the n-gram model must have seen before; it guesses "
          "nothing "
          "otherwise");
  }
};

/// Guesses by an n-gram model of the text (Katz 1987).
class NgramStage {
 public:
  NgramStage(const Options& options, const Resources& resources)
      : ngrams_({.order = options.order, .smoothing = NgramSmoothing::katz, .known = options.known},
                resources, "staged") {}
  void begin(const Sequence& sequence) { ngrams_.begin(sequence); }
  void start(const Sequence& sequence) { ngrams_.catch_up(sequence); }
  std::optional<Token> next(const Sequence& sequence, TokenSpan text) {
    const TokenSpan drafted = text.subspan(sequence.tokens.size());
    if (!ngrams_.enough(ngrams_.condition(sequence, drafted))) return std::nullopt;
    return ngrams_.best();
  }

 private:
  NgramSource ngrams_;
};

/// Guesses by a second, smaller model: its best token, or the coupled one, with one forward for each.
class ModelStage {
 public:
  explicit ModelStage(Resources resources) : resources_(std::move(resources)) {
    caches_.resize(static_cast<std::size_t>(resources_.batch));
    logits_.resize(static_cast<std::size_t>(resources_.draft->config().head_rows()));
  }
  void begin(const Sequence& sequence) { cache(sequence).begin(sequence, resources_); }
  std::optional<Token> next(const Sequence& sequence, TokenSpan text) {
    DraftCache& of_text = cache(sequence);
    if (static_cast<int>(text.size()) > of_text.session().capacity()) return std::nullopt;
    of_text.catch_up(text, static_cast<std::size_t>(sequence.prompt_length), feed_);
    parents_.resize(feed_.size());
    std::iota(parents_.begin(), parents_.end(), -1);
    const auto row = static_cast<std::int32_t>(feed_.size()) - 1;
    const Feed feed{&of_text.session(), feed_, parents_, {&row, 1}, logits_.data()};
    resources_.draft->forward({&feed, 1});
    of_text.keep(feed_);
    const ModelConfig& config = resources_.draft->config();
    q_.assign_logits(logits_, sequence.coupled ? sequence.sampling : SamplingParams{}, config.head_ids,
                     config.vocab);
    return sequence.coupled ? q_.sample_coupled(sequence.coins, static_cast<std::int64_t>(text.size()))
                            : q_.argmax();
  }

 private:
  DraftCache& cache(const Sequence& sequence) { return caches_[static_cast<std::size_t>(sequence.slot)]; }
  Resources resources_;
  std::vector<DraftCache> caches_;  // [batch]
  std::vector<Token> feed_;
  std::vector<std::int32_t> parents_;
  std::vector<float> logits_;  // [head_rows]
  Distribution q_;
};

TreeShape shape_of(const Options& options) {
  TreeShape shape = TreeShape::of_widths(options.widths, "staged: widths");
  int fed = 0, nodes = 1;
  for (const int width : options.widths) fed += nodes, nodes *= width;
  if (fed > kMostFed) {
    throw Error({"staged: widths", fmt::format("{} nodes with children", fed),
                 fmt::format("at most {}", kMostFed), "Use fewer children or less depth."});
  }
  return shape;
}

class Staged final : public Strategy {
 public:
  Staged(const Options& options, const Resources& resources)
      : options_(options),
        growth_(options.growth, shape_of(options), resources.with_draft(0)),
        levels_(resources.with_draft(0)) {
    if (options_.ahead == 0) return;
    if (resources.drafts.size() > 1) by_model_.emplace(resources.with_draft(1));
    else by_text_.emplace(options_, resources);
    levels_.look_ahead([this](DraftLevel& level) { guess(level); });
  }

  void begin(const Sequence& sequence) override {
    growth_.begin(sequence);
    levels_.begin(sequence);
    if (by_model_) by_model_->begin(sequence);
    if (by_text_) by_text_->begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (const Sequence* sequence : sequences) {
      if (by_text_) by_text_->start(*sequence);
    }
    levels_.draft(sequences, drafts, growth_.shape().depth(),
                  [this](DraftLevel& level) { growth_.grow(level); });
  }

 private:
  // Guesses a chain below the first nodes of the level that is fed next.
  void guess(DraftLevel& level) {
    const Sequence& sequence = level.sequence();
    const int count = std::min(options_.branches, growth_.fed_count(level));
    for (int i = 0; i < count; ++i) {
      const TreeGrowth::Fed fed = growth_.fed(level, i);
      text_ = sequence.tokens;
      level.draft().tree.path_to(fed.node, path_);
      for (const int node : path_) text_.push_back(level.draft().tree.token(node));
      std::optional<int> parent = fed.number;
      for (int step = 0; step < options_.ahead && level.may_guess_below(*parent); ++step) {
        const std::optional<Token> token =
            by_model_ ? by_model_->next(sequence, text_) : by_text_->next(sequence, text_);
        if (!token) break;
        parent = level.guess(*token, *parent);
        if (!parent) break;
        text_.push_back(*token);
      }
    }
  }

  Options options_;
  TreeGrowth growth_;
  DraftLevels levels_;
  std::optional<NgramStage> by_text_;
  std::optional<ModelStage> by_model_;
  std::vector<Token> text_;
  std::vector<int> path_;
};

const RegisterStrategy<Options, Staged> registered{{
    .name = "staged",
    .summary = "a tree or chain from a small model that is itself sped up by a smaller model or by n-grams",
    .paper = "Spector and Re 2023, Staged Speculative Decoding",
    .draft_source = "small model, with a second model or an n-gram model of the text as its draft",
    .stop_rule = "shape of the tree",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .most_drafts = 2,
}};

}  // namespace
}  // namespace speclab
