// Self-speculation: the target drafts for itself with a cheaper forward, on its own session and cache. There
// is no draft model and no second cache. Each drafted row attends to the K/V that the target committed. Three
// forwards are cheaper than a full one:
//
//   layer_skip    skips some layers. The verifying forward drops the drafted rows and computes its own. With
//                 `skip_sets` each token has its own layers: the surer the draft was of the token before, the
//                 more it may skip.
//   early_exit    runs the first E layers and the output head. The verifying forward starts at layer E and
//                 reuses the K/V and hidden states of the drafted rows, so these layers run only once. With
//                 `exits` each token leaves at the first of several layers at which it is saturated: its best
//                 token is probable, or is the same as at the exit before, or the hidden state has changed
//                 little.
//   sparse_cache  runs all layers, but sees only the first and the last positions of the cache, and with
//                 `keep` also those between them to which the target attends most. It is cheaper only where
//                 attention over a long context takes much of a forward. With `skip` it also skips layers.
//
// Paper:       Zhang et al. 2024, "Draft & Verify" (arXiv 2309.08168): layer skip, adaptive draft length;
//              Elhoushi et al. 2024, "LayerSkip" (arXiv 2404.16710): early exit that reuses the cache;
//              Schuster et al. 2022, "CALM" (arXiv 2207.07061): an exit for each token, chosen by its
//              probabilities or by the similarity of hidden states;
//              Sadhukhan et al. 2024, "MagicDec" (arXiv 2408.11049): a sparse cache over the same weights;
//              Xiao et al. 2024, "StreamingLLM" (arXiv 2309.17453): first and last positions;
//              Sun et al. 2024, "TriForce" (arXiv 2404.11912): chunks retrieved by attention; its third
//              level is hierarchical_speculation.cpp;
//              Zhang et al. 2023, "H2O" (arXiv 2306.14048): heavy hitters;
//              Neelam et al. 2025, "SPIRe" (arXiv 2504.06419): static sparse attention and pruned layers,
//              which is sparse_cache with `skip`. SPIRe trains this draft and gives it a feedback memory;
//              neither is done here.
// Draft cost:  gamma forwards of one row. c = (kept layers + output head) / (all layers + output head), if a
//              forward takes as long as reading its weights. The head is a large part of a small model.
// Loses when:  acceptance is below c. That is usual for an early exit of a model whose output head was not
//              trained to read the states of early layers (LayerSkip's recipe trains this). With "budget":
//              "auto" the chain is then shorter, down to nothing. The budget computes c from the measured
//              times of a layer and of a cached position (core/decoding/budget/own_draft_costs.h).
//
// What is chosen for each token depends only on the text and on the drafted tokens before it. So the row that
// the token is drawn from is a distribution q like any other, and the draft hands it over. The cost of the
// choice is described in core/decoding/on_target: token_exits.h, token_skips.h and sparse_cache.h.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/on_target/sparse_cache.h"
#include "core/decoding/on_target/token_exits.h"
#include "core/decoding/on_target/token_skips.h"
#include "core/decoding/registry.h"
#include "core/model/net/skipped_layers.h"

namespace speclab {
namespace {

enum class DraftBy { layer_skip, early_exit, sparse_cache };

struct SelfSpeculationOptions {
  DraftBy draft_by = DraftBy::layer_skip;
  std::vector<int> skip;
  std::string skip_file;
  std::vector<std::string> skip_sets;
  std::vector<double> skip_bounds;
  int exit = 0;
  std::vector<int> exits;
  ExitWhen exit_when = ExitWhen::probability;
  double exit_threshold = .9;
  SparseCacheOptions cache;
  DraftChainOptions chain;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("draft_by", draft_by,
          {{DraftBy::layer_skip, "layer_skip"},
           {DraftBy::early_exit, "early_exit"},
           {DraftBy::sparse_cache, "sparse_cache"}},
          "layer_skip: the draft skips layers; early_exit: it stops after some layers, and the verifying "
          "forward "
          "goes on from there; sparse_cache: it sees a part of the cache");
    visit("skip", skip, Range<int>{0, 10'000},
          "layers that the draft skips, numbered from 0. Empty: layer_skip skips every second layer, without "
          "the first and the last one, and sparse_cache skips none");
    visit("skip_file", skip_file,
          "instead of `skip`: a file with the layers to skip, as `speclab optimize layers` writes it");
    visit("skip_sets", skip_sets,
          "layer_skip, instead of `skip`: sets of layers to skip, such as [\"\", \"1,3\"], one of which is "
          "chosen for each token by skip_bounds");
    visit("skip_bounds", skip_bounds, Range<double>{0, 1},
          "ascending probabilities, one fewer than skip_sets. After a drafted token of probability c, the "
          "next token uses set i (counted from 0) if i of the bounds are at most c; the first token of a "
          "draft uses set 0");
    visit("exit", exit, Range<int>{0, 10'000},
          "early_exit: number of layers that the draft runs; 0: half of the layers");
    visit("exits", exits, Range<int>{1, 10'000},
          "early_exit, instead of `exit`: numbers of layers, ascending, after which a token may leave");
    visit("exit_when", exit_when,
          {{ExitWhen::probability, "probability"},
           {ExitWhen::agreement, "agreement"},
           {ExitWhen::similarity, "similarity"}},
          "with `exits`, a token leaves at the first exit where this holds. probability: the best next token "
          "has at least the probability exit_threshold; agreement: the best next token is the same as at "
          "the exit before; similarity: the cosine between the hidden states at this exit and at the exit "
          "before is at least exit_threshold. At the last exit every token leaves");
    visit("exit_threshold", exit_threshold, Range<double>{0, 1},
          "with `exits`: least probability, or least cosine");
    cache.fields(visit);
    chain.fields(visit);
    budget.fields(visit);
  }
};

Error wrong(const char* option, std::string got, std::string expected, std::string advice) {
  return Error(
      {fmt::format("self_speculation: {}", option), std::move(got), std::move(expected), std::move(advice)});
}

/// The layers that drafts run, if they all skip the same ones. Empty if they skip none, with skip_sets, and
/// for an early exit.
std::vector<int> kept_layers(const SelfSpeculationOptions& options, const Model& target) {
  if (!options.skip_sets.empty()) {
    if (options.draft_by != DraftBy::layer_skip || !options.skip.empty() || !options.skip_file.empty())
      throw wrong("skip_sets", "sets with skip, skip_file or another draft_by",
                  "skip_sets alone, with layer_skip", "Leave one of them out.");
    return {};
  }
  if (!options.skip_bounds.empty())
    throw wrong("skip_bounds", "bounds without skip_sets", "none", "Leave them out, or give skip_sets.");
  if (options.draft_by == DraftBy::early_exit) {
    if (!options.skip.empty() || !options.skip_file.empty())
      throw wrong("skip, skip_file", "layers to skip with early_exit", "none",
                  "Leave them out, or draft by layer_skip.");
    return {};
  }
  if (!options.skip.empty() && !options.skip_file.empty())
    throw wrong("skip, skip_file", "both", "only one of them", "Leave one of them out.");
  const std::span<const int> layers = target.layers();
  if (!options.skip_file.empty())
    return layers_without(layers, read_skip_file(options.skip_file, layers), options.skip_file);
  if (!options.skip.empty()) return layers_without(layers, options.skip, "self_speculation: skip");
  if (options.draft_by == DraftBy::sparse_cache) return {};
  return layers_without(layers, every_second_layer(layers, "self_speculation"), "self_speculation");
}

/// The layers at which drafts exit, ascending; none without an early exit.
std::vector<int> exits_of(const SelfSpeculationOptions& options, const Model& target) {
  if (options.draft_by != DraftBy::early_exit) {
    if (options.exit > 0)
      throw wrong("exit", std::to_string(options.exit), "0 unless draft_by is early_exit",
                  "Leave it out, or draft by early_exit.");
    if (!options.exits.empty())
      throw wrong("exits", fmt::format("[{}]", fmt::join(options.exits, ", ")),
                  "none unless draft_by is early_exit", "Leave them out, or draft by early_exit.");
    return {};
  }
  const int layers = static_cast<int>(target.layers().size());
  const char* const option = options.exits.empty() ? "exit" : "exits";
  if (layers < 2)
    throw wrong(option, fmt::format("a target of {} layers", layers), "a target of at least 2 layers", "");
  if (options.exits.empty() && options.exit == 0) return {layers / 2};
  const std::vector<int> exits = options.exits.empty() ? std::vector{options.exit} : options.exits;
  if (!options.exits.empty() && options.exit > 0)
    throw wrong("exit, exits", "both", "only one of them", "Leave one of them out.");
  if (exits.back() >= layers || std::ranges::adjacent_find(exits, std::greater_equal<>()) != exits.end())
    throw wrong(option, fmt::format("[{}]", fmt::join(exits, ", ")),
                fmt::format("1 to {}, ascending, because the target runs {} layers", layers - 1, layers), "");
  return exits;
}

/// What drafts see of the cache; null: all.
std::unique_ptr<SparseCache> cache_of(const SelfSpeculationOptions& options, const std::vector<int>& kept,
                                      const Resources& resources) {
  if (options.draft_by == DraftBy::sparse_cache)
    return std::make_unique<SparseCache>(options.cache, kept, resources, "self_speculation");
  if (options.cache.keep != KeepMiddle::none)
    throw wrong("keep", "positions of a sparse cache", "\"none\" unless draft_by is sparse_cache",
                "Leave it out, or draft by sparse_cache.");
  return nullptr;
}

/// The layers of draft forwards that are the same for all tokens.
LayerPart part_of(const std::vector<int>& kept, const std::vector<int>& exits) {
  if (!exits.empty()) return LayerPart::until(exits.front());
  return kept.empty() ? LayerPart() : LayerPart::only(kept);
}

class SelfSpeculation final : public Strategy {
 public:
  SelfSpeculation(const SelfSpeculationOptions& options, const Resources& resources)
      : kept_(kept_layers(options, *resources.target)),
        exits_(exits_of(options, *resources.target)),
        cache_(cache_of(options, kept_, resources)),
        token_exits_(exits_.size() > 1
                         ? std::make_unique<TokenExits>(
                               ExitSettings{exits_, options.exit_when, options.exit_threshold}, resources)
                         : nullptr),
        token_skips_(options.skip_sets.empty()
                         ? nullptr
                         : std::make_unique<TokenSkips>(options.skip_sets, options.skip_bounds,
                                                        resources.target->layers(),
                                                        "self_speculation: skip_sets")),
        chain_(options.chain, resources, options.budget.rule,
               ChainOnTarget{.layers = part_of(kept_, exits_),
                             .cache = cache_.get(),
                             .source = !exits_.empty() ? "exit"
                                       : cache_        ? "sparse"
                                                       : "skip",
                             .exits = token_exits_.get(),
                             .skips = token_skips_.get(),
                             .most_layers = most_layers()}) {}

  TargetUse target_use() const override { return {.drafts = true, .exits = exits_}; }
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      chain_.observe(*sequences[i], outcomes[i].draft->tree.drafted(),
                     static_cast<int>(outcomes[i].acceptance->path.size()));
    }
  }

 private:
  // The most layers that a draft forward runs, with skip_sets or an early exit; else 0.
  int most_layers() const {
    if (token_skips_ == nullptr) return exits_.empty() ? 0 : exits_.back();
    std::size_t most = 0;
    for (int set = 0; set < token_skips_->sets(); ++set)
      most = std::max(most, token_skips_->kept(set).size());
    return static_cast<int>(most);
  }

  // The chain refers to these.
  std::vector<int> kept_, exits_;
  std::unique_ptr<SparseCache> cache_;
  std::unique_ptr<TokenExits> token_exits_;
  std::unique_ptr<TokenSkips> token_skips_;
  DraftChain chain_;
};

const RegisterStrategy<SelfSpeculationOptions, SelfSpeculation> registered{{
    .name = "self_speculation",
    .summary = "the target drafts for itself on its own cache: some layers, or a part of the cache",
    .paper =
        "Zhang et al. 2024, Draft & Verify; Elhoushi et al. 2024, LayerSkip; Schuster et al. 2022, CALM; "
        "Sadhukhan et al. 2024, MagicDec",
    .draft_source = "layers of the target, or the target with a sparse cache",
    .stop_rule = "budget; a schedule: speclab list schedules",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing; an early exit is accepted often only if the target was trained for it",
    .may_name_file = "skip_file",
    .skips_layers = true,
    .drafts_with_target = true,
}};

}  // namespace
}  // namespace speclab
