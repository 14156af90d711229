// Composition: several copies of earlier text and, if there is one, a draft model answer together. Every
// token that they propose has an estimate of being right: frequency times the trust in a match of that length
// for a copy, the draft's own probability for the model. `order: first` lets the surest copy draft alone and
// falls back to the model; `order: tree` does the same where a copy is sure, and else verifies the model's
// chain, its runner-ups and the copy as one small tree. Nothing is drafted that is not worth a row of the
// target.
//
// Paper:       Oliaro et al. 2024, SuffixDecoding (copies, hybrid with a model); Miao et al. 2024, SpecInfer
//              (one tree from several drafters); runner-ups as in Cai et al. 2024, Medusa.
// Draft cost:  microseconds for copies; the draft's forwards where no copy is sure.
// Loses when:  as its sources: tau - 1 is less than the extra rows and the draft's steps cost.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/spec/draft_chain.h"
#include "core/spec/registry.h"
#include "core/spec/suffix_memory.h"

namespace speclab {
namespace {

constexpr int kDepth = 64;

// Who has nodes in a draft, as bits, and what the record calls them.
constexpr unsigned kText = 1, kEarlier = 2, kDraft = 4;
std::string_view name_of(unsigned sources) {
  constexpr std::array<std::string_view, 8> kNames = {"",      "text",       "earlier",       "",
                                                      "draft", "draft+text", "draft+earlier", ""};
  return kNames[sources];
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

struct Options {
  std::vector<std::string> sources = {"text", "draft"};
  std::string order = "tree";
  double sure = .45;
  double worth = .25;
  double worth_of_draft = .12;
  double worth_of_runner_up = .2;
  int length = 5;
  int nodes = 5;
  // Greedy texts of SmolLM2-135M-Instruct for the prompts of configs/prompts/speclab.jsonl that are not in
  // quickstart.jsonl.
  std::vector<double> trust = {.2, .5, .55, .7, .72, .78, .8, .83, .87, .88, .9, .92, .93, .94, .95, .97};
  bool runner_up = true;
  int remember_tokens = 1000000;
  DraftChainOptions chain;
  Options() {
    chain.gamma = 3;
    chain.schedule.schedule = "product";
    chain.schedule.product_threshold = .5;
  }
  void fields(OptionVisitor& visit) {
    visit("sources", sources,
          "of \"text\" (prompt and output), \"earlier\" (outputs for earlier prompts; a record then depends "
          "on their order) and \"draft\"");
    visit("order", order, {"first", "tree"}, "one source per step, or all that is worth it as one tree");
    visit("sure", sure, Range<double>{0, 1}, "a copy drafts alone when its first token is so probable");
    visit("worth", worth, Range<double>{0, 1},
          "smallest probability of a path for which a copied token is verified");
    visit("worth_of_draft", worth_of_draft, Range<double>{0, 1},
          "the same for the draft model's token, at temperature 0 only: what was drawn is always verified");
    visit("worth_of_runner_up", worth_of_runner_up, Range<double>{0, 1},
          "the same for its second best token");
    visit("length", length, Range<int>{1, 64}, "most tokens to copy");
    visit("nodes", nodes, Range<int>{1, 64}, "a tree of more gets no further copies and runner-ups");
    visit("trust", trust, Range<double>{0, 1},
          "how often a copy is right after 1, 2, ... matching tokens; the last one goes on");
    visit("runner_up", runner_up, "the draft's second best tokens too, where they are worth a row");
    visit("remember_tokens", remember_tokens, Range<int>{16, 1 << 27}, "budget of \"earlier\"");
    chain.fields(visit);
  }
};

class Composition final : public Strategy {
 public:
  Composition(const Options& options, const Resources& resources)
      : options_(checked(options)),
        text_(contains(options.sources, "text")),
        earlier_(contains(options.sources, "earlier")),
        memory_(kDepth, earlier_ ? SuffixMemory::Remember::outputs : SuffixMemory::Remember::nothing,
                static_cast<std::size_t>(options.remember_tokens), resources) {
    copying_.length = options_.length;
    copying_.factor = 64;  // trust is what limits a copy
    copying_.min_probability = options_.worth;
    copying_.trust = options_.trust;
    if (contains(options_.sources, "draft") && resources.draft) {  // without a model the copies go on alone
      chain_ = std::make_unique<DraftChain>(options_.chain, resources);
      chain_->leave_out_below(options_.worth_of_draft);
      if (options_.order == "tree" && options_.runner_up) chain_->want_runner_ups();
    }
    slots_.resize(static_cast<std::size_t>(resources.batch));
  }

  void begin(const Sequence& sequence) override {
    memory_.begin(sequence);
    if (chain_) chain_->begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    modelled_.clear();
    modelled_drafts_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& slot = slots_[static_cast<std::size_t>(sequences[i]->slot)];
      slot.by_model = 0;
      const bool copies = text_ || earlier_;
      slot.from =
          copies ? memory_.speculate(*sequences[i], copying_, text_, slot.copy) : SuffixMemory::From::nowhere;
      const bool sure = !slot.copy.nodes().empty() && slot.copy.nodes().front().probability >= options_.sure;
      if (chain_ && !sure) {
        modelled_.push_back(sequences[i]);
        modelled_drafts_.push_back(drafts[i]);
      } else {
        add_copy(slot, *drafts[i]);
      }
    }
    if (modelled_.empty()) return;
    chain_->draft(modelled_, modelled_drafts_);
    for (std::size_t i = 0; i < modelled_.size(); ++i) {
      Draft& draft = *modelled_drafts_[i];
      Slot& slot = slots_[static_cast<std::size_t>(modelled_[i]->slot)];
      slot.by_model = draft.tree.drafted();
      if (options_.order == "tree") {
        add_runner_ups(*modelled_[i], slot, draft);
        add_copy(slot, draft);
      } else {
        draft.source = name_of(draft.tree.drafted() > 0 ? kDraft : 0);
      }
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      memory_.catch_up(*sequences[i]);
      if (!chain_) continue;
      // The model's chain is nodes 1 .. by_model, whatever else hangs in the tree.
      const int drafted = slots_[static_cast<std::size_t>(sequences[i]->slot)].by_model;
      const auto& path = outcomes[i].acceptance->path;
      const auto accepted =
          std::count_if(path.begin(), path.end(), [=](int node) { return node <= drafted; });
      chain_->observe(*sequences[i], drafted, static_cast<int>(accepted));
    }
  }

 private:
  struct Slot {
    SuffixMemory::From from = SuffixMemory::From::nowhere;
    SuffixSpeculation copy;
    int by_model = 0;  // nodes of the present draft that the model's chain has
  };

  static const Options& checked(const Options& options) {
    static const std::vector<std::string> known = {"text", "earlier", "draft"};
    for (const std::string& source : options.sources) {
      if (!contains(known, source)) {
        throw Error({"composition: sources", "\"" + source + "\"", "\"text\", \"earlier\" or \"draft\"",
                     suggest(source, known)});
      }
    }
    if (options.sources.empty())
      throw Error({"composition: sources", "an empty list", "\"text\", \"earlier\" or \"draft\"", ""});
    return options;
  }

  // The model's second choices, as siblings of its first ones. Nothing drew them, so they are one-hot; behind
  // a drawn sibling that changes no law.
  void add_runner_ups(const Sequence& sequence, const Slot& slot, Draft& draft) const {
    double above = 1;  // probability of the chain down to the parent
    for (const DraftChain::RunnerUp& other : chain_->runner_ups(sequence)) {
      const int parent = other.depth - 1;
      if (parent > slot.by_model || draft.tree.drafted() >= options_.nodes) return;
      if (parent > 0) above *= draft.confidence[static_cast<std::size_t>(parent)];
      if (above * other.probability >= options_.worth_of_runner_up)
        draft.add(other.token, parent, Draft::kOneHot, other.probability);
    }
  }

  // Hangs the copy into the tree, along the nodes that are there already: the verifier tries a drawn token
  // before a one-hot one, and once it is rejected a second child of the same token has no chance under any
  // exact rule. Where the copy leaves the model, what the model is sure of counts against it.
  void add_copy(const Slot& slot, Draft& draft) const {
    const bool with_model = slot.by_model > 0;
    const int before = draft.tree.drafted();
    int at = 0;
    double doubt = 1;
    for (const SuffixSpeculation::Node& node : slot.copy.nodes()) {
      const int shared = child(draft.tree, at, node.token, before);
      if (shared > 0) {
        at = shared;
        continue;
      }
      if (with_model && at < slot.by_model) doubt = 1 - draft.confidence[static_cast<std::size_t>(at + 1)];
      if (node.probability * doubt < options_.worth || draft.tree.drafted() >= options_.nodes) break;
      const double above =
          node.parent < 0 ? 1 : slot.copy.nodes()[static_cast<std::size_t>(node.parent)].probability;
      at = draft.add(node.token, at, Draft::kOneHot, static_cast<float>(node.probability / above));
    }
    unsigned sources = before > 0 ? kDraft : 0;
    if (draft.tree.drafted() > before) sources |= slot.from == SuffixMemory::From::text ? kText : kEarlier;
    draft.source = name_of(sources);
  }

  static int child(const TokenTree& tree, int parent, Token token, int last) {
    for (int node = parent + 1; node <= last; ++node) {
      if (tree.parent(node) == parent && tree.token(node) == token) return node;
    }
    return 0;
  }

  Options options_;
  bool text_, earlier_;
  SuffixMemory memory_;
  SuffixSpeculationOptions copying_;
  std::unique_ptr<DraftChain> chain_;
  std::vector<Slot> slots_;  // [batch]
  std::vector<const Sequence*> modelled_;
  std::vector<Draft*> modelled_drafts_;
};

const RegisterStrategy<Options, Composition> registered{{
    .name = "composition",
    .summary = "copies and a draft model together: the surest source alone, or a small tree of all that is "
               "worth a row",
    .paper = "Oliaro et al. 2024, SuffixDecoding; Miao et al. 2024, SpecInfer",
    .draft_source =
        "copies from the text, and from earlier texts if wanted; a small model where no copy is sure",
    .stop_rule = "estimated probability of a path; schedule of the small model",
    .verification = "chain; tree",
    .criterion = "any rule; q of the model, one-hot for the rest",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing, or a small model",
}};

}  // namespace
}  // namespace speclab
