// Self-speculation: the target drafts for itself with a cheaper forward, on its own session and cache. There
// is no draft model and no second cache. Each drafted row attends to the K/V that the target committed. Three
// forwards are cheaper than a full one:
//
//   layer_skip    skips some layers. The verifying forward drops the drafted rows and computes its own.
//   early_exit    runs the first E layers and the output head. The verifying forward starts at layer E and
//                 reuses the K/V and hidden states of the drafted rows, so these layers run only once.
//   sparse_cache  runs all layers, but sees only the first and the last positions of the cache. It is cheaper
//                 only where attention over a long context takes much of a forward. With `skip` it also skips
//                 layers.
//
// Paper:       Zhang et al. 2024, "Draft & Verify" (arXiv 2309.08168): layer skip, adaptive draft length;
//              Elhoushi et al. 2024, "LayerSkip" (arXiv 2404.16710): early exit that reuses the cache;
//              Sadhukhan et al. 2024, "MagicDec" (arXiv 2408.11049): a sparse cache over the same weights;
//              Xiao et al. 2024, "StreamingLLM" (arXiv 2309.17453): first and last positions.
// Draft cost:  gamma forwards of one row. c = (kept layers + output head) / (all layers + output head), when
//              reading weights takes the time; the output head is large in a small model.
// Loses when:  acceptance is below c. That is usual for an early exit of a model whose output head was not
//              trained to read the states of early layers (LayerSkip's recipe trains this). With "budget":
//              "auto" the chain is then shorter, down to nothing. c follows from the measured time of a layer
//              and of a cached position (core/decoding/budget/own_draft_costs.h).
//
// A draft chain needs the layer at which it exits before it runs. An exit at the first layer whose best token
// equals the next layer's (saturation, as in CALM: Schuster et al. 2022) would need the output head after
// every layer, which costs more than the layers that it saves in models with a large vocabulary. Heavy
// hitters (H2O: Zhang et al. 2023) need the attention weights, which a forward does not return.

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"
#include "core/model/net/skipped_layers.h"

namespace speclab {
namespace {

enum class DraftBy { layer_skip, early_exit, sparse_cache };

struct Options {
  DraftBy draft_by = DraftBy::layer_skip;
  std::vector<int> skip;
  std::string skip_file;
  int exit = 0;
  int first = 4;
  int last = 508;
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
          "in place of `skip`: a file with the layers to skip, as `speclab optimize layers` writes it");
    visit("exit", exit, Range<int>{0, 10'000},
          "early_exit: number of layers that the draft runs; 0: half of the layers");
    visit("first", first, Range<int>{0, 1 << 28}, "sparse_cache: first positions that the draft sees");
    visit("last", last, Range<int>{0, 1 << 28}, "sparse_cache: last committed positions that the draft sees");
    chain.fields(visit);
    budget.fields(visit);
  }
};

Error wrong(const char* option, std::string got, std::string expected, std::string advice) {
  return Error(
      {fmt::format("self_speculation: {}", option), std::move(got), std::move(expected), std::move(advice)});
}

/// The layers that drafts run, if they skip some. Empty if they skip none, and for an early exit.
std::vector<int> kept_layers(const Options& options, const Model& target) {
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

/// The layer at which drafts exit; 0 without an early exit.
int exit_of(const Options& options, const Model& target) {
  if (options.draft_by != DraftBy::early_exit) {
    if (options.exit > 0)
      throw wrong("exit", std::to_string(options.exit), "0 unless draft_by is early_exit",
                  "Leave it out, or draft by early_exit.");
    return 0;
  }
  const int layers = static_cast<int>(target.layers().size());
  if (layers < 2 || options.exit >= layers)
    throw wrong("exit",
                layers < 2 ? fmt::format("a target of {} layers", layers) : std::to_string(options.exit),
                layers < 2 ? "a target of at least 2 layers"
                           : fmt::format("1 to {}, because the target runs {} layers", layers - 1, layers),
                "");
  return options.exit > 0 ? options.exit : layers / 2;
}

class SelfSpeculation final : public Strategy {
 public:
  SelfSpeculation(const Options& options, const Resources& resources)
      : kept_(kept_layers(options, *resources.target)),
        exit_(exit_of(options, *resources.target)),
        view_(options.draft_by == DraftBy::sparse_cache
                  ? std::optional(CacheView::ends(options.first, options.last))
                  : std::nullopt),
        chain_(options.chain, resources, options.budget.rule,
               ChainOnTarget{exit_ > 0       ? LayerPart::until(exit_)
                             : kept_.empty() ? LayerPart()
                                             : LayerPart::only(kept_),
                             view_ ? &*view_ : nullptr,
                             exit_ > 0 ? "exit"
                             : view_   ? "sparse"
                                       : "skip"}) {}

  TargetUse target_use() const override { return {.drafts = true, .exit = exit_}; }
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
  std::vector<int> kept_;  // the chain refers to it
  int exit_;
  std::optional<CacheView> view_;  // the chain refers to it
  DraftChain chain_;
};

const RegisterStrategy<Options, SelfSpeculation> registered{{
    .name = "self_speculation",
    .summary = "the target drafts for itself on its own cache: some layers, or a part of the cache",
    .paper = "Zhang et al. 2024, Draft & Verify; Elhoushi et al. 2024, LayerSkip; Sadhukhan et al. 2024, "
             "MagicDec",
    .draft_source = "layers of the target, or the target with a sparse cache",
    .stop_rule = "budget; schedule: constant gamma, heuristic, confidence, adaptive confidence, product",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing; an early exit is accepted often only if the target was trained for it",
    .may_name_file = "skip_file",
    .skips_layers = true,
}};

}  // namespace
}  // namespace speclab
