// Merged trees: several sources draft at once, and their chains are merged into one tree (a trie), which the
// target verifies in one forward. Where two chains begin with the same tokens they share nodes. The sources
// are models (distilled, layers of the target), an n-gram model, and copies from this text and from earlier
// ones.
//
// The rule "rejection" is exact at every temperature (multi-step speculative sampling): each drawn token is a
// child of its own with the q of the source that drew it, and the children of a node are tested one after
// the other, each with its own q. Two draws of the same token below the same node stay two children: the
// second one cannot be accepted once the first was rejected, but its q changes the residual. What was drafted
// below both hangs below the first. A copied token was not drawn, so its q is one-hot. Beside an equal child
// it is left out: the equal child is tested before it, and once that child is rejected, no exact rule accepts
// the copy. Draft::copied_too lists the equal child. At temperature 0 equal tokens are one node.
//
// The tree has at most `nodes` drafted tokens. The weight of a node is the trust in its source times the
// probability that this source gives the node's path (for a copy: `trust_in_copies` to the power of the
// depth). At every temperature a chain stops at a node whose weight is below `worth`. Temperature 0: all q
// are one-hot. The chains may have more than `nodes` tokens together, and the nodes of least weight are
// pruned. Higher temperatures: a drawn token must not be left out because of its value, so the tree is not
// pruned. All chains stop when `nodes` tokens have been drawn, and copies add nothing to a tree that is full.
//
// With "budget": "auto" the options `length`, `copies` and `nodes` are upper limits. Before a token is drawn,
// a step chooses the length of the chains of each draft model, of the chains of the n-gram model and of each
// copy. It chooses the lengths that give the most tokens per time, by the measured times of all models and by
// how often the sources were right so far, alone and together (UnionBudget). N-grams and copies cost no
// forward of their own, only rows of the target's forward. A source that adds nothing to the others then does
// not draft.
//
// Paper:       Miao et al. 2024, "SpecInfer" (arXiv 2305.09781): merge-based tree construction (Section 3),
//              token trees from several small models, multi-step speculative sampling (Algorithm 2).
//              scripts/train has the boost-tuning of that section.
// Draft cost:  the forwards of all draft models, one after the other; microseconds for the other sources.
// Loses when:  the sources propose the same tokens: all models are paid for, and the tree is one chain. With
//              a budget only the cheapest of them then drafts.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/decoding/budget/union_budget.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/ngrams/ngram_source.h"
#include "core/decoding/drafting/suffix_memory.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostMerged = 3;  // models
constexpr int kMostNodes = TreeShape::kMostDrafted;
constexpr std::string_view kMergedModels[kMostMerged] = {"draft 1", "draft 2", "draft 3"};
constexpr SamplingParams kSoft{.temperature = 1, .top_k = 0, .top_p = 1};

enum class TreeSource { draft, ngram, text, earlier };
constexpr std::array<std::string_view, 4> kSourceNames = {"draft", "ngram", "text", "earlier"};
constexpr int kMostSources = kMostMerged + 3;  // models, n-grams, two copies
static_assert(kMostSources <= UnionBudget::kMostSources);
constexpr const char* kKnownSources = "\"draft\", \"ngram\", \"text\" or \"earlier\"";

struct MergedTreesOptions {
  std::vector<std::string> sources = {"draft", "text"};
  std::vector<int> sequences;
  int length = 4;
  std::vector<double> trust;
  double worth = 0;
  int nodes = 16;
  NgramSourceOptions ngrams;
  int ngram_sequences = 1;
  double trust_in_ngrams = .5;
  int copies = 4;
  int least_match = 1;
  double trust_in_copies = .5;
  int remember_tokens = 1000000;
  DraftSampling draft;
  BudgetOptions budget;
  bool has(TreeSource source) const {
    return std::ranges::find(sources, kSourceNames[static_cast<std::size_t>(source)]) != sources.end();
  }
  bool carries_memory() const { return has(TreeSource::earlier); }
  void fields(OptionVisitor& visit) {
    visit(
        "sources", sources,
        "list of \"draft\" (the draft models, if there are any), \"ngram\" (an n-gram model), \"text\" (a "
        "copy from prompt and output) and \"earlier\" (a copy from outputs for earlier prompts; prompts are "
        "then decoded in the order of their file)");
    visit("sequences", sequences, Range<int>{1, 16},
          "number of chains that each draft model draws, independently, [drafts]; empty: one each. At "
          "temperature 0 the chains of a model are equal");
    visit("length", length, Range<int>{1, 64}, "tokens of a chain");
    visit("trust", trust, Range<double>{0, 1},
          "factor on the weights of each draft model, [drafts]; empty: 1 each");
    visit("worth", worth, Range<double>{0, 1}, "a chain ends at a node whose weight is less than this");
    visit("nodes", nodes, Range<int>{1, kMostNodes}, "largest number of drafted tokens of the tree");
    ngrams.fields(visit, "ngram_");
    visit("ngram_sequences", ngram_sequences, Range<int>{1, 16},
          "number of chains that the n-gram model draws, independently");
    visit("trust_in_ngrams", trust_in_ngrams, Range<double>{0, 1},
          "factor on the weights of the n-gram model");
    visit("copies", copies, Range<int>{1, 64}, "largest number of tokens of a copy");
    visit("least_match", least_match, Range<int>{1, kMostMatched},
          "a copy follows an earlier occurrence of at least this many of the last tokens");
    visit("trust_in_copies", trust_in_copies, Range<double>{0, 1},
          "the weight of a copy's node is this to the power of its depth");
    visit("remember_tokens", remember_tokens, Range<int>{16, 1 << 27}, "tokens that \"earlier\" keeps");
    budget.fields(visit);
    draft.fields(visit);
  }
  static constexpr int kMostMatched = 64;  ///< longest match that a copy continues
};

/// Throws Error unless the list names known sources, each once.
void require_sources(const std::vector<std::string>& sources) {
  static const std::vector<std::string> known(kSourceNames.begin(), kSourceNames.end());
  if (sources.empty()) throw Error({"merged_trees: sources", "an empty list", kKnownSources, ""});
  for (const std::string& name : sources) {
    if (std::ranges::find(known, name) == known.end())
      throw Error({"merged_trees: sources", "\"" + name + "\"", kKnownSources, suggest(name, known)});
    if (std::ranges::count(sources, name) > 1)
      throw Error({"merged_trees: sources", "\"" + name + "\" twice", "each source once", ""});
  }
}

template <class T>
std::vector<T> one_each(std::vector<T> list, std::size_t drafts, T usual, const char* name) {
  if (list.empty()) list.assign(drafts, usual);
  if (list.size() != drafts) {
    throw Error({fmt::format("merged_trees: {}", name), fmt::format("{} entries", list.size()),
                 fmt::format("one for each of the {} draft models", drafts),
                 "Give one for each, or leave the list empty."});
  }
  return list;
}

class MergedTrees final : public Strategy {
 public:
  MergedTrees(const MergedTreesOptions& options, const Resources& resources) : options_(options) {
    require_sources(options_.sources);
    const std::size_t models = options_.has(TreeSource::draft) ? resources.drafts.size() : 0;
    if (models == 0 && options_.sources == std::vector<std::string>{"draft"}) {
      throw Error({"merged_trees: sources", "no draft model, and no other source", kKnownSources,
                   "Name a draft model, or a source that needs none."});
    }
    sequences_ = one_each(options_.sequences, models, 1, "sequences");
    trust_ = one_each(options_.trust, models, 1.0, "trust");
    const int chains = std::accumulate(sequences_.begin(), sequences_.end(),
                                       options_.has(TreeSource::ngram) ? options_.ngram_sequences : 0);
    most_drawn_ = chains * options_.length;
    if (most_drawn_ > kMostNodes) {
      throw Error({"merged_trees: sequences, ngram_sequences, length",
                   fmt::format("{} x {} tokens", chains, options_.length),
                   fmt::format("at most {}", kMostNodes), "Use fewer or shorter chains."});
    }
    for (std::size_t i = 0; i < models; ++i) {
      const Resources one = resources.with_draft(i);
      levels_.emplace_back(one);
      configs_.push_back(&one.draft->config());
    }
    if (options_.has(TreeSource::ngram))
      ngrams_.emplace(options_.ngrams, resources, "merged_trees", "ngram_");
    if (options_.has(TreeSource::text) || options_.has(TreeSource::earlier)) {
      memory_.emplace(MergedTreesOptions::kMostMatched,
                      options_.has(TreeSource::earlier) ? SuffixMemory::Remember::outputs
                                                        : SuffixMemory::Remember::nothing,
                      static_cast<std::size_t>(options_.remember_tokens), resources);
    }
    // After m matching tokens a copy has at most copies * (m - least_match + 1) tokens.
    copying_.length = options_.copies;
    copying_.factor = options_.copies;
    copying_.offset = -options_.copies * (options_.least_match - 1);
    copying_.min_probability = 0;
    slots_.resize(static_cast<std::size_t>(resources.batch));
    for (Slot& slot : slots_) {
      slot.parts.resize(models + (ngrams_ ? 1 : 0));
      for (const TreeSource from : {TreeSource::earlier, TreeSource::text})
        if (options_.has(from)) slot.copies.push_back({.from = from});
    }
    if (!options_.budget.automatic()) return;
    costs_ = resources.costs;
    for (std::size_t i = 0; i < models; ++i) {
      draft_costs_.push_back(resources.with_draft(i).costs);
      require_draft_costs(draft_costs_.back().get(), "merged_trees");
    }
    for (Slot& slot : slots_) slot.budget.emplace(costs_, slot.sources());
  }

  // At temperature 0 a draft model may be fed with more nodes than the pruned tree has.
  int max_nodes() const override { return 1 + std::max(options_.nodes, most_drawn_); }

  void begin(const Sequence& sequence) override {
    Slot& slot = slot_of(sequence);
    slot.sampling = options_.draft.over(sequence.sampling);
    if (slot.budget) slot.budget->begin();
    if (memory_) memory_->begin(sequence);
    if (ngrams_) ngrams_->begin(sequence);
    for (DraftLevels& levels : levels_) levels.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (const Sequence* sequence : sequences) {
      slot_of(*sequence).drawn = 0;
      choose_lengths(*sequence);
    }
    for (source_ = 0; source_ < levels_.size(); ++source_) {
      parts_.clear();
      drafting_.clear();
      for (const Sequence* sequence : sequences) {
        Part& part = start_part(*sequence, trust_[source_]);
        if (slot_of(*sequence).lengths[source_] == 0) continue;
        drafting_.push_back(sequence);
        parts_.push_back(&part.draft);
      }
      levels_[source_].draft(drafting_, parts_, options_.length, [this](DraftLevel& level) { grow(level); });
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (ngrams_) draw_ngrams(*sequences[i]);
      merge(*sequences[i], *drafts[i]);
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (memory_) memory_->catch_up(*sequences[i]);
      if (ngrams_) ngrams_->catch_up(*sequences[i]);
      if (costs_) learn(*sequences[i], outcomes[i]);
    }
  }

 private:
  /// The chains of one source that draws tokens, as a tree of its own.
  struct Part {
    Draft draft;
    std::vector<double> weights;  // [nodes]
    std::vector<int> heads;       // of a model: nodes that are fed, the ends of its chains
    std::vector<int> numbers;     // [heads], see DraftLevel::feed()
  };
  struct Copy {
    TreeSource from;
    SuffixSpeculation found{};  // the longest copy that this step could take
    int taken = 0;              // tokens of it that this step drafts
  };
  struct Slot {
    SamplingParams sampling;
    std::vector<Part> parts;   // [models], then the n-gram model if it is a source
    std::vector<Copy> copies;  // of the sources "earlier" and "text", in this order, if they are listed
    std::array<int, kMostSources> lengths{};  // of the chains of each part and of each copy in this step
    int drawn = 0;                            // tokens that the sources have drawn in this step
    std::optional<UnionBudget> budget;
    int sources() const { return static_cast<int>(parts.size() + copies.size()); }
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  // Looks up the copies, and chooses how long all chains are. Nothing has been drawn yet.
  void choose_lengths(const Sequence& sequence) {
    Slot& slot = slot_of(sequence);
    for (Copy& copy : slot.copies) {
      if (copy.from == TreeSource::text) memory_->from_text(sequence, copying_, copy.found);
      else memory_->from_earlier(sequence, copying_, copy.found);
    }
    const std::size_t models = levels_.size(), drawing = slot.parts.size();
    for (std::size_t i = 0; i < slot.lengths.size(); ++i)
      slot.lengths[i] = i < drawing ? options_.length : options_.copies;
    if (!slot.budget) return;
    const bool one_hot = slot.sampling.temperature <= 0;  // the chains of one source are equal
    const int deepest = std::max(sequence.depth_limit, 0);
    std::array<UnionBudget::Source, kMostSources> offers{};
    int evidence = 0;  // for the chain of the last source
    for (std::size_t i = 0; i < models; ++i) {
      const auto room = std::max<std::int64_t>(0, levels_[i].room(sequence));
      offers[i] = {.most = static_cast<int>(std::min<std::int64_t>({options_.length, deepest, room})),
                   .chains = one_hot ? 1 : sequences_[i],
                   .first_ns = draft_costs_[i]->draft(1 + levels_[i].behind(sequence)),
                   .next_ns = draft_costs_[i]->draft(sequences_[i])};
    }
    if (ngrams_) {
      const int known = ngrams_->condition(sequence, {});
      if (ngrams_->enough(known)) offers[models].most = std::min(options_.length, deepest);
      offers[models].chains = one_hot ? 1 : options_.ngram_sequences;
      evidence = known;
    }
    for (std::size_t i = 0; i < slot.copies.size(); ++i) {
      const SuffixSpeculation& found = slot.copies[i].found;
      offers[drawing + i].most = std::min(deepest, static_cast<int>(found.nodes().size()));
      evidence = evidence_of_match(found.match_length());
    }
    const auto sources = static_cast<std::size_t>(slot.sources());
    slot.budget->choose(std::span(offers).first(sources), one_hot ? kMostNodes : options_.nodes,
                        options_.nodes, evidence);
    for (std::size_t i = 0; i < sources; ++i) slot.lengths[i] = slot.budget->length(static_cast<int>(i));
  }

  // Compares the chains of all sources with the tokens that the step emitted.
  void learn(const Sequence& sequence, const Outcome& outcome) {
    Slot& slot = slot_of(sequence);
    const TokenSpan emitted = TokenSpan(sequence.tokens).last(static_cast<std::size_t>(outcome.emitted));
    std::array<int, kMostSources> drafted{}, right{};
    for (std::size_t i = 0; i < slot.parts.size(); ++i) {
      const TokenTree& tree = slot.parts[i].draft.tree;
      depths_.assign(1, 0);
      for (int node = 1; node < tree.size(); ++node) {
        const int depth = depths_[static_cast<std::size_t>(tree.parent(node))];
        // A node counts with its depth, or with -1 if its path is not the text.
        depths_.push_back(depth >= 0 && depth < outcome.emitted &&
                                  tree.token(node) == emitted[static_cast<std::size_t>(depth)]
                              ? depth + 1
                              : -1);
        right[i] = std::max(right[i], depths_.back());
      }
      drafted[i] = tree.size() > 1 ? longest_path(tree) : 0;
    }
    for (std::size_t i = 0; i < slot.copies.size(); ++i) {
      const Copy& copy = slot.copies[i];
      const std::size_t at = slot.parts.size() + i;
      drafted[at] = copy.taken;
      while (right[at] < std::min(copy.taken, outcome.emitted) &&
             copy.found.nodes()[static_cast<std::size_t>(right[at])].token ==
                 emitted[static_cast<std::size_t>(right[at])])
        ++right[at];
    }
    const auto sources = static_cast<std::size_t>(slot.sources());
    slot.budget->observe(std::span(drafted).first(sources), std::span(right).first(sources), outcome.emitted,
                         outcome.draft->tree.drafted());
  }

  int longest_path(const TokenTree& tree) {
    int longest = 0;
    depths_.assign(1, 0);
    for (int node = 1; node < tree.size(); ++node) {
      depths_.push_back(depths_[static_cast<std::size_t>(tree.parent(node))] + 1);
      longest = std::max(longest, depths_.back());
    }
    return longest;
  }

  // Empties the part of the current source.
  Part& start_part(const Sequence& sequence, double trust) {
    Part& part = slot_of(sequence).parts[source_];
    part.draft.reset(sequence.tokens.back());
    part.weights.assign(1, trust);
    return part;
  }

  // Draws the next token of the current source, at `depth` of its chain number `chain`. The coins of a
  // step are numbered in pages of 128, and the sources take the pages in turn: page `s` is for the first 128
  // nodes of source s, page kMostSources + s for its next 128, and so on. So no coin is used twice.
  Token draw(const Sequence& sequence, const Distribution& q, const Draft& own, int chain, int depth) const {
    if (sequence.coupled) {
      return q.sample_coupled(sequence.coins, sequence.position() + depth, chain % sequence.noise_streams);
    }
    constexpr int kPage = 128;
    const int node = own.tree.size(), page = node / kPage * kMostSources + static_cast<int>(source_);
    return q.sample(sequence.coins, {sequence.position(), Purpose::draft,
                                     static_cast<std::uint32_t>(page * kPage + node % kPage)});
  }

  // Draws one token after each fed node; at depth 0 one for each chain. Whether a token is drawn depends only
  // on tokens that were drawn before. So each drawn token has the distribution q, given the earlier draws.
  void grow(DraftLevel& level) {
    const Sequence& sequence = level.sequence();
    Slot& slot = slot_of(sequence);
    Part& part = slot.parts[source_];
    Draft& own = part.draft;
    const ModelConfig& config = *configs_[source_];
    if (level.depth() == 0) {
      part.heads.assign(static_cast<std::size_t>(sequences_[source_]), 0);
      part.numbers.assign(part.heads.size(), -1);
    }
    heads_.clear();
    numbers_.clear();
    int index = Draft::kOneHot;
    for (std::size_t i = 0; i < part.heads.size(); ++i) {
      const int head = part.heads[i];
      if (level.depth() > 0 || i == 0) {  // the chains share the row of the pending token
        prefix_.clear();
        own.tree.path_to(head, path_);
        for (const int node : path_) prefix_.push_back(own.tree.token(node));
        const std::span<const float> row = level.logits(static_cast<int>(i), prefix_);
        if (row.empty()) continue;
        own.new_q(&index).assign_logits(row, slot.sampling, config.head_ids, config.vocab);
        if (own.q[static_cast<std::size_t>(index)].one_hot())
          soft_.assign_logits(row, kSoft, config.head_ids, config.vocab);
      }
      if (index == Draft::kOneHot) continue;
      const Distribution& q = own.q[static_cast<std::size_t>(index)];
      if (!q.one_hot() && slot.drawn >= options_.nodes) break;
      const Token token = draw(sequence, q, own, static_cast<int>(i), level.depth() + 1);
      ++slot.drawn;
      const double sure = (q.one_hot() ? soft_ : q).prob(token),
                   weight = part.weights[static_cast<std::size_t>(head)] * sure;
      const int node = own.add(token, head, index, static_cast<float>(sure));
      part.weights.push_back(weight);
      if (level.depth() + 1 == std::min(level.limit(), slot.lengths[source_]) || weight < options_.worth)
        continue;
      heads_.push_back(node);
      numbers_.push_back(level.feed(token, part.numbers[i]));
    }
    std::swap(part.heads, heads_);
    std::swap(part.numbers, numbers_);
  }

  // Draws the chains of the n-gram model, one after the other. See grow() for why this is exact.
  void draw_ngrams(const Sequence& sequence) {
    source_ = levels_.size();
    Slot& slot = slot_of(sequence);
    Part& part = start_part(sequence, options_.trust_in_ngrams);
    Draft& own = part.draft;
    const int limit = std::min(slot.lengths[source_], sequence.depth_limit);
    for (int chain = 0; chain < options_.ngram_sequences; ++chain) {
      int node = 0;
      prefix_.clear();
      for (int depth = 1; depth <= limit; ++depth) {
        if (slot.sampling.temperature > 0 && slot.drawn >= options_.nodes) return;
        if (!ngrams_->enough(ngrams_->condition(sequence, prefix_))) break;
        const auto next =
            ngrams_->add(sequence, prefix_, slot.sampling, own, node,
                         [&](const Distribution& q) { return draw(sequence, q, own, chain, depth); });
        if (!next) break;
        ++slot.drawn;
        part.weights.push_back(part.weights[static_cast<std::size_t>(node)] *
                               own.confidence[static_cast<std::size_t>(*next)]);
        node = *next;
        prefix_.push_back(own.tree.token(node));
        if (part.weights.back() < options_.worth) break;
      }
    }
  }

  // Puts the chains and the copies into one tree: first the models', then the n-gram model's, then the
  // copies.
  void merge(const Sequence& sequence, Draft& draft) {
    Slot& slot = slot_of(sequence);
    weights_.assign(1, 0);
    draft.copies_ignore_draws = true;
    const auto credit = [&](int first, std::string_view name) {
      if (draft.tree.drafted() >= first) draft.contributions.push_back({first, name});
    };
    for (std::size_t source = 0; source < slot.parts.size(); ++source) {
      Part& part = slot.parts[source];
      const int first = draft.tree.size();
      place_.assign(1, 0);
      moved_.assign(static_cast<std::size_t>(part.draft.q_used), Draft::kOneHot);
      for (int node = 1; node < part.draft.tree.size(); ++node) {
        const auto at = static_cast<std::size_t>(node);
        place_.push_back(add(draft, part.draft.tree.token(node), part.draft.tree.parent(node),
                             move_q(part.draft, node, draft), part.draft.confidence[at], part.weights[at]));
      }
      credit(first, source < levels_.size() ? kMergedModels[source] : "ngram");
    }
    for (std::size_t i = slot.copies.size(); i-- > 0;) {  // from this text first
      const int first = draft.tree.size();
      add_copy(slot.copies[i], slot.lengths[slot.parts.size() + i], draft);
      credit(first, slot.copies[i].from == TreeSource::text ? "copies" : "earlier");
    }
    prune(draft);
    if (draft.contributions.empty()) return;
    draft.source = draft.contributions.size() > 1 ? "merged" : draft.contributions.front().source;
    if (draft.contributions.size() == 1) draft.contributions.clear();
  }

  // Moves the q of a drawn node of a part to the merged tree, once. Returns its index there.
  int move_q(Draft& part, int node, Draft& draft) {
    const int index = part.q_of[static_cast<std::size_t>(node)];
    if (index == Draft::kOneHot) return index;
    int& moved = moved_[static_cast<std::size_t>(index)];
    if (moved == Draft::kOneHot && !part.q[static_cast<std::size_t>(index)].one_hot()) {
      draft.new_q(&moved);
      std::swap(draft.q[static_cast<std::size_t>(moved)], part.q[static_cast<std::size_t>(index)]);
    }
    return moved;
  }

  // Adds a node below place_[parent] and returns where the nodes below it go.
  int add(Draft& draft, Token token, int parent, int q, float confidence, double weight) {
    const int below = place_[static_cast<std::size_t>(parent)], known = draft.tree.child(below, token);
    if (known > 0) {
      double& best = weights_[static_cast<std::size_t>(known)];
      best = std::max(best, weight);
      if (q == Draft::kOneHot) {  // a second one-hot child with this token changes nothing
        if (draft.q_of[static_cast<std::size_t>(known)] != Draft::kOneHot) draft.copied_too.push_back(known);
        return known;
      }
    }
    const int node = draft.add(token, below, q, confidence);
    weights_.push_back(weight);
    return known > 0 ? known : node;
  }

  void add_copy(Copy& copy, int length, Draft& draft) {
    copy.taken = 0;
    place_.assign(1, 0);
    double weight = 1;
    for (const SuffixSpeculation::Node& node : copy.found.nodes()) {
      if (copy.taken == length) return;
      weight *= options_.trust_in_copies;
      const bool full = drawn(draft) && draft.tree.drafted() >= options_.nodes;
      if (full && draft.tree.child(place_.back(), node.token) == 0) {
        draft.copies_ignore_draws = false;  // the size of the tree depends on which tokens were drawn
        return;
      }
      place_.push_back(
          add(draft, node.token, static_cast<int>(place_.size()) - 1, Draft::kOneHot, -1, weight));
      ++copy.taken;
    }
  }

  static bool drawn(const Draft& draft) { return draft.q_used > 0; }

  // Keeps the nodes of the largest weights. Each node first gets at least the weight of its children. So the
  // parent of a kept node is kept.
  void prune(Draft& draft) {
    if (drawn(draft) || draft.tree.drafted() <= options_.nodes) return;
    for (int node = draft.tree.size() - 1; node > 1; --node) {
      const auto parent = static_cast<std::size_t>(draft.tree.parent(node));
      weights_[parent] = std::max(weights_[parent], weights_[static_cast<std::size_t>(node)]);
    }
    order_.resize(static_cast<std::size_t>(draft.tree.drafted()));
    std::iota(order_.begin(), order_.end(), 1);
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      const double x = weights_[static_cast<std::size_t>(a)], y = weights_[static_cast<std::size_t>(b)];
      return x > y || (x == y && a < b);
    });
    keep_.assign(static_cast<std::size_t>(draft.tree.size()), 0);
    for (int i = 0; i < options_.nodes; ++i)
      keep_[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])] = 1;
    draft.keep(keep_);
  }

  MergedTreesOptions options_;
  std::vector<int> sequences_;  // [models]
  std::vector<double> trust_;   // [models]
  int most_drawn_ = 0;          // tokens of all chains
  std::optional<NgramSource> ngrams_;
  std::optional<SuffixMemory> memory_;
  SuffixSpeculationOptions copying_;
  std::shared_ptr<const StepCosts> costs_;                     // null without a budget
  std::vector<std::shared_ptr<const StepCosts>> draft_costs_;  // [models], with a budget
  std::vector<DraftLevels> levels_;                            // [models]
  std::vector<const ModelConfig*> configs_;                    // [models]
  std::vector<Slot> slots_;                                    // [batch]
  std::size_t source_ = 0;  // the part that is being drawn, see Slot::parts
  std::vector<Draft*> parts_;
  std::vector<const Sequence*> drafting_;
  // Scratch:
  std::vector<int> heads_, numbers_, path_, place_, moved_, order_, depths_;
  std::vector<Token> prefix_;
  std::vector<double> weights_;  // [nodes of the merged tree]
  std::vector<char> keep_;
  Distribution soft_;
};

const RegisterStrategy<MergedTreesOptions, MergedTrees> registered{{
    .name = "merged_trees",
    .summary = "chains of several models and of an n-gram model, and copies, merged into one tree",
    .paper = "Miao et al. 2024, SpecInfer (merge-based construction)",
    .draft_source = "several small models or layers of the target, n-grams, and copies from this or earlier "
                    "texts",
    .stop_rule = "budget; length; weight of a chain; number of nodes",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "small models with the target's vocabulary; nothing for the other sources",
    .most_drafts = kMostMerged,
    .may_name_file = "ngram_file",
}};

}  // namespace
}  // namespace speclab
