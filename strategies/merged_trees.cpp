// Merged trees: several drafts draft at once, and their chains are merged into one tree (a trie), which the
// target verifies in one forward. Where two chains begin with the same tokens they share nodes. The drafts
// are models (distilled, layers of the target) and copies from the text.
//
// Exact at every temperature with the rule "rejection" (multi-step speculative sampling): each drawn token is
// a child of its own with the q of the model that drew it, and the children of a node are tested one after
// the other, each with its own q. Two draws of the same token below the same node stay two children: the
// second one cannot be accepted once the first was rejected, but its q changes the residual. What was drafted
// below both hangs below the first. At temperature 0 equal tokens are one node.
//
// The tree has at most `nodes` nodes. The weight of a node is `trust` of its draft times the probability that
// this draft gives the node's path. At every temperature a chain stops when its weight is below `worth`.
// Temperature 0: the nodes of least weight are pruned. Higher temperatures: a drawn token must not be left
// out because of its value, so nothing is pruned, and all chains stop when `nodes` tokens have been drawn.
//
// With "budget": "auto" these options are upper limits. Before a token is drawn, a step chooses how long the
// chains of each draft and the copy are: as much as gives the most tokens per time, by the measured times of
// all models and by how often the drafts were right so far, alone and together (UnionBudget). A draft that
// adds nothing to the others then does not run.
//
// Paper:       Miao et al. 2024, "SpecInfer" (arXiv 2305.09781): merge-based tree construction (Section 3),
//              token trees from several small models, multi-step speculative sampling (Algorithm 2).
// Draft cost:  the forwards of all draft models, one after the other.
// Loses when:  the drafts propose the same tokens: all models are paid for, and the tree is one chain. With a
//              budget only one of them then drafts.

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
#include "core/decoding/budget/union_budget.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/suffix_memory.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostDrafts = 3;  // models; with the copies a tree has at most four sources
constexpr int kMostNodes = 127;
constexpr std::string_view kNames[kMostDrafts] = {"draft 1", "draft 2", "draft 3"};
constexpr SamplingParams kSoft{.temperature = 1, .top_k = 0, .top_p = 1};

struct Options {
  std::vector<int> sequences;
  int length = 4;
  std::vector<double> trust;
  double worth = 0;
  int nodes = 16;
  int copies = 4;
  double trust_in_copies = .5;
  DraftSampling draft;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("sequences", sequences, Range<int>{1, 16},
          "number of chains that each draft draws, independently, [drafts]; empty: one each. At temperature "
          "0 the "
          "chains of a draft are equal");
    visit("length", length, Range<int>{1, 64}, "tokens of a chain");
    visit("trust", trust, Range<double>{0, 1},
          "factor on the weights of each draft, [drafts]; empty: 1 each");
    visit("worth", worth, Range<double>{0, 1}, "a chain grows no further below a node of less weight");
    visit("nodes", nodes, Range<int>{1, kMostNodes}, "largest number of nodes of the tree");
    visit("copies", copies, Range<int>{0, 64},
          "length of the copy from the text that is merged too, after the longest match; 0: none");
    visit("trust_in_copies", trust_in_copies, Range<double>{0, 1},
          "the weight of a copy's node is this to the power of its depth");
    budget.fields(visit);
    draft.fields(visit);
  }
};

template <class T>
std::vector<T> one_each(std::vector<T> list, std::size_t drafts, T usual, const char* name) {
  if (list.empty()) list.assign(drafts, usual);
  if (list.size() != drafts) {
    throw Error({fmt::format("merged_trees: {}", name), fmt::format("{} entries", list.size()),
                 fmt::format("one for each of the {} draft models", drafts), "Or leave the list empty."});
  }
  return list;
}

class MergedTrees final : public Strategy {
 public:
  MergedTrees(const Options& options, const Resources& resources)
      : options_(options),
        sequences_(one_each(options.sequences, resources.drafts.size(), 1, "sequences")),
        trust_(one_each(options.trust, resources.drafts.size(), 1.0, "trust")),
        memory_(kMatch, SuffixMemory::Remember::nothing, 1, resources) {
    const int chains = std::accumulate(sequences_.begin(), sequences_.end(), 0);
    if (chains * options_.length > kMostNodes) {
      throw Error({"merged_trees: sequences, length", fmt::format("{} x {} tokens", chains, options_.length),
                   fmt::format("at most {}", kMostNodes), "Use fewer or shorter chains."});
    }
    copying_.length = options_.copies;
    copying_.factor = options_.copies;
    copying_.min_probability = 0;
    for (std::size_t i = 0; i < resources.drafts.size(); ++i) {
      const Resources one = resources.with_draft(i);
      levels_.emplace_back(one);
      configs_.push_back(&one.draft->config());
    }
    slots_.resize(static_cast<std::size_t>(resources.batch));
    for (Slot& slot : slots_) slot.parts.resize(levels_.size());
    if (!options_.budget.automatic()) return;
    costs_ = resources.costs;
    for (std::size_t i = 0; i < resources.drafts.size(); ++i) {
      draft_costs_.push_back(resources.with_draft(i).costs);
      require_draft_costs(draft_costs_.back().get(), "merged_trees");
    }
    for (Slot& slot : slots_) slot.budget.emplace(costs_, static_cast<int>(levels_.size()) + 1);
  }

  void begin(const Sequence& sequence) override {
    memory_.begin(sequence);
    Slot& slot = slot_of(sequence);
    slot.sampling = options_.draft.over(sequence.sampling);
    if (slot.budget) slot.budget->begin();
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
        Slot& slot = slot_of(*sequence);
        Part& part = slot.parts[source_];
        part.draft.reset(sequence->tokens.back());
        part.weights.assign(1, trust_[source_]);
        if (slot.lengths[source_] == 0) continue;
        drafting_.push_back(sequence);
        parts_.push_back(&part.draft);
      }
      levels_[source_].draft(drafting_, parts_, options_.length, [this](DraftLevel& level) { grow(level); });
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) merge(*sequences[i], *drafts[i]);
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      memory_.catch_up(*sequences[i]);
      if (costs_) learn(*sequences[i], outcomes[i]);
    }
  }

 private:
  static constexpr int kMatch = 64;  // longest match that a copy continues

  /// The chains of one draft model, as a tree of its own.
  struct Part {
    Draft draft;
    std::vector<double> weights;  // [nodes]
    std::vector<int> heads;       // nodes that are fed, the ends of its chains
    std::vector<int> numbers;     // [heads], see DraftLevel::feed()
  };
  struct Slot {
    SamplingParams sampling;
    std::vector<Part> parts;                     // [drafts]
    int drawn = 0;                               // tokens that the drafts have drawn in this step
    std::array<int, kMostDrafts + 1> lengths{};  // of the chains of each draft and of the copy in this step
    SuffixSpeculation copy;
    // With a budget:
    std::optional<UnionBudget> budget;
    int copied = 0;  // tokens of the copy in this step
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  // Looks up the copy, and chooses how long all chains are. Nothing has been drawn yet.
  void choose_lengths(const Sequence& sequence) {
    Slot& slot = slot_of(sequence);
    const std::size_t models = levels_.size();
    slot.lengths.fill(options_.length);
    slot.lengths[models] = options_.copies;
    if (options_.copies > 0) memory_.from_text(sequence, copying_, slot.copy);
    if (!slot.budget) return;
    const bool one_hot = slot.sampling.temperature <= 0;  // the chains of one draft are equal
    std::array<UnionBudget::Source, kMostDrafts + 1> offers{};
    const int deepest = std::max(sequence.depth_limit, 0);
    for (std::size_t i = 0; i < models; ++i) {
      const auto room = std::max<std::int64_t>(0, levels_[i].room(sequence));
      offers[i] = {.most = static_cast<int>(std::min<std::int64_t>({options_.length, deepest, room})),
                   .chains = one_hot ? 1 : sequences_[i],
                   .first_ns = draft_costs_[i]->draft(1 + levels_[i].behind(sequence)),
                   .next_ns = draft_costs_[i]->draft(sequences_[i])};
    }
    offers[models].most =
        options_.copies > 0 ? std::min(deepest, static_cast<int>(slot.copy.nodes().size())) : 0;
    slot.budget->choose(std::span(offers).first(models + 1), one_hot ? kMostNodes : options_.nodes,
                        options_.nodes, evidence_of_match(slot.copy.match_length()));
    for (std::size_t i = 0; i <= models; ++i) slot.lengths[i] = slot.budget->length(static_cast<int>(i));
  }

  // Compares the chains of all drafts, and the copy, with the tokens that the step emitted.
  void learn(const Sequence& sequence, const Outcome& outcome) {
    Slot& slot = slot_of(sequence);
    const TokenSpan emitted = TokenSpan(sequence.tokens).last(static_cast<std::size_t>(outcome.emitted));
    std::array<int, kMostDrafts + 1> drafted{}, right{};
    for (std::size_t i = 0; i < levels_.size(); ++i) {
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
    const std::size_t copy = levels_.size();
    drafted[copy] = slot.copied;
    while (right[copy] < std::min(slot.copied, outcome.emitted) &&
           slot.copy.nodes()[static_cast<std::size_t>(right[copy])].token ==
               emitted[static_cast<std::size_t>(right[copy])])
      ++right[copy];
    slot.budget->observe(std::span(drafted).first(copy + 1), std::span(right).first(copy + 1),
                         outcome.emitted, outcome.draft->tree.drafted());
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

  // Draws one token after each fed node; at depth 0 one for each chain. Whether a token is drawn depends only
  // on tokens that were drawn before. So each drawn token has the law q, given all that led to the draw.
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
      if (!q.one_hot() && slot.drawn == options_.nodes) break;
      // Each draft has addresses of its own, so that no coin is used twice.
      const auto draw =
          static_cast<std::uint32_t>(static_cast<int>(source_) * (kMostNodes + 1) + own.tree.size());
      const Token token = sequence.coupled
                              ? q.sample_coupled(sequence.coins, sequence.position() + level.depth() + 1,
                                                 static_cast<int>(i) % sequence.noise_streams)
                              : q.sample(sequence.coins, {sequence.position(), Purpose::draft, draw});
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

  // Puts the chains and the copy into one tree.
  void merge(const Sequence& sequence, Draft& draft) {
    Slot& slot = slot_of(sequence);
    weights_.assign(1, 0);
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
        const auto of_q = static_cast<std::size_t>(part.draft.q_of[at]);
        const bool drawn = !part.draft.q[of_q].one_hot();
        if (drawn && moved_[of_q] == Draft::kOneHot) {
          draft.new_q(&moved_[of_q]);
          std::swap(draft.q[static_cast<std::size_t>(moved_[of_q])], part.draft.q[of_q]);
        }
        place_.push_back(add(draft, part.draft.tree.token(node), part.draft.tree.parent(node), moved_[of_q],
                             part.draft.confidence[at], part.weights[at]));
      }
      credit(first, kNames[source]);
    }
    const int first = draft.tree.size();
    slot.copied = 0;
    if (slot.lengths[slot.parts.size()] > 0) add_copy(slot, draft);
    credit(first, "copies");
    prune(draft);
    if (draft.contributions.empty()) return;
    draft.source = draft.contributions.size() > 1 ? "merged" : draft.contributions.front().source;
    if (draft.contributions.size() == 1) draft.contributions.clear();
  }

  // Adds a node below place_[parent] and returns where the nodes below it go.
  int add(Draft& draft, Token token, int parent, int q, float confidence, double weight) {
    const int below = place_[static_cast<std::size_t>(parent)], known = draft.tree.child(below, token);
    if (known > 0) {
      double& best = weights_[static_cast<std::size_t>(known)];
      best = std::max(best, weight);
      if (q == Draft::kOneHot) return known;  // a second one-hot child with this token changes nothing
    }
    const int node = draft.add(token, below, q, confidence);
    weights_.push_back(weight);
    return known > 0 ? known : node;
  }

  void add_copy(Slot& slot, Draft& draft) {
    place_.assign(1, 0);
    double weight = 1;
    for (const SuffixSpeculation::Node& node : slot.copy.nodes()) {
      if (slot.copied == slot.lengths[slot.parts.size()]) return;
      weight *= options_.trust_in_copies;
      const bool full = drawn(draft) && draft.tree.drafted() >= options_.nodes;
      if (full && draft.tree.child(place_.back(), node.token) == 0) return;
      place_.push_back(
          add(draft, node.token, static_cast<int>(place_.size()) - 1, Draft::kOneHot, -1, weight));
      ++slot.copied;
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

  Options options_;
  std::vector<int> sequences_;  // [drafts]
  std::vector<double> trust_;   // [drafts]
  SuffixMemory memory_;
  SuffixSpeculationOptions copying_;
  std::shared_ptr<const StepCosts> costs_;                     // null without a budget
  std::vector<std::shared_ptr<const StepCosts>> draft_costs_;  // [drafts], with a budget
  std::vector<DraftLevels> levels_;                            // [drafts]
  std::vector<const ModelConfig*> configs_;                    // [drafts]
  std::vector<Slot> slots_;                                    // [batch]
  std::size_t source_ = 0;                                     // the draft that is drafting
  std::vector<Draft*> parts_;
  std::vector<const Sequence*> drafting_;
  // Scratch:
  std::vector<int> heads_, numbers_, path_, place_, moved_, order_, depths_;
  std::vector<Token> prefix_;
  std::vector<double> weights_;  // [nodes of the merged tree]
  std::vector<char> keep_;
  Distribution soft_;
};

const RegisterStrategy<Options, MergedTrees> registered{{
    .name = "merged_trees",
    .summary = "chains of several models, and a copy from the text, merged into one tree",
    .paper = "Miao et al. 2024, SpecInfer (merge-based construction)",
    .draft_source = "several small models or layers of the target, and copies from the text",
    .stop_rule = "budget; length; weight of a chain; number of nodes",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "small models with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .most_drafts = kMostDrafts,
}};

}  // namespace
}  // namespace speclab
