// SuffixDecoding: indexes the text so far, and optionally the texts of earlier requests. The index has the
// frequency of every substring. The strategy looks at the suffixes of the text that occurred before. It takes
// the one whose continuations promise the most accepted tokens, and drafts its most frequent continuations,
// as a path or as a tree. The longer the match, the more tokens are drafted. All drafted tokens are one-hot.
// With `contexts: enough` it takes the longest suffix that has enough continuations, as the trie of alipay's
// Lookahead does (whose defaults are depth 9, length 63, min_probability 0).
//
// Paper:       Oliaro, Jia, Campos, Qiao 2024, "SuffixDecoding: Extreme Speculative Decoding for Emerging AI
//              Applications", Algorithm 1 and Section 3; Zhao et al. 2023, "Lookahead: An Inference
//              Acceleration Framework for Large Language Model with Lossless Generation Accuracy".
// Draft cost:  O(1) amortised per token for the index, and microseconds per step to speculate; no model runs.
// Loses when:  the text repeats nothing, or rows are expensive to verify and chance matches of one token add
//              many of them.

#include <string>
#include <vector>

#include "core/decoding/registry.h"
#include "core/decoding/drafting/suffix_memory.h"

namespace speclab {
namespace {

struct SuffixDecodingOptions {
  SuffixSpeculationOptions speculation;
  int depth = 64;
  double min_score = 0;
  SuffixMemory::Remember remember = SuffixMemory::Remember::nothing;
  int remember_tokens = 1000000;
  CutBudgetOptions budget;
  bool carries_memory() const { return remember != SuffixMemory::Remember::nothing; }
  void fields(OptionVisitor& visit) {
    speculation.fields(visit);
    visit("depth", depth, Range<int>{2, 1024}, "longest match that is looked for");
    visit("min_score", min_score, Range<double>{0, 64},
          "draft only if the expected number of accepted tokens, by the frequencies, is at least this");
    visit(
        "remember", remember,
        {{SuffixMemory::Remember::nothing, "nothing"},
         {SuffixMemory::Remember::outputs, "outputs"},
         {SuffixMemory::Remember::texts, "texts"}},
        "what to remember of earlier prompts: nothing, their outputs, or their whole texts; with outputs or "
        "texts, prompts are decoded in the order of their file");
    visit("remember_tokens", remember_tokens, Range<int>{16, 1 << 27},
          "largest number of remembered tokens; when it is reached, the oldest half is dropped");
    budget.fields(visit);
  }
};

class SuffixDecoding final : public Strategy {
 public:
  SuffixDecoding(const SuffixDecodingOptions& options, const Resources& resources)
      : options_(options),
        memory_(options.depth, options.remember, static_cast<std::size_t>(options.remember_tokens),
                resources) {}

  void begin(const Sequence& sequence) override { memory_.begin(sequence); }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto from = memory_.speculate(*sequences[i], options_.speculation, best_);
      if (best_.nodes().empty() || best_.score() < options_.min_score) continue;
      drafts[i]->evidence = best_.match_length();
      drafts[i]->source = from == SuffixMemory::From::text ? "suffix" : "suffix of earlier texts";
      for (const SuffixSpeculation::Node& node : best_.nodes()) {
        const double above =
            node.parent < 0 ? 1 : best_.nodes()[static_cast<std::size_t>(node.parent)].probability;
        // After the pending token, nodes of the draft are in the order of the speculation.
        drafts[i]->add(node.token, node.parent + 1, Draft::kOneHot,
                       static_cast<float>(node.probability / above));
      }
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome>) override {
    for (const Sequence* sequence : sequences) memory_.catch_up(*sequence);
  }

 private:
  SuffixDecodingOptions options_;
  SuffixMemory memory_;
  SuffixSpeculation best_;
};

constexpr StrategyBenchmark kSuffixDecodingBenchmarks[] = {
    {"suffix_decoding", "{}", BenchmarkKind::replayed},
    {"suffix_decoding,tree", R"({"tree": true, "length": 16, "factor": 4})", BenchmarkKind::replayed}};

const RegisterStrategy<SuffixDecodingOptions, SuffixDecoding> registered{{
    .name = "suffix_decoding",
    .summary = "copies the most frequent continuation of a suffix of the text that occurred before",
    .paper = "Oliaro et al. 2024, SuffixDecoding; Zhao et al. 2023, Lookahead (trie)",
    .draft_source = "copies from the text, and from earlier texts if wanted",
    .stop_rule = "length by match; frequency",
    .verification = "chain or tree",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .benchmarks = kSuffixDecodingBenchmarks,
}};

}  // namespace
}  // namespace speclab
