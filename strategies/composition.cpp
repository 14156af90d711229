// Composition: several sources draft together. They copy from the text, from earlier texts and from a
// datastore; a draft model is a further source if there is one. Every proposed token has an estimated
// probability of being right. For a copied token it is the token's frequency times the trust (a factor that
// depends on the length of the match); for a token of the model it is the model's probability.
// The best copy is the one whose tokens' probabilities have the largest sum. It is sure if the
// probability of its first token reaches the option `sure`. `order: first` lets the best copy draft alone if
// it is sure, otherwise the model. `order: tree` drafts the copies alone if the best one is sure; otherwise
// it makes one small tree of the model's chain, its runner-ups (second best tokens) and the copies.
// `order: listed` asks the sources one after the other; the first one that finds anything drafts. A token
// that was not drawn at random is drafted only if it is worth a row of the target: the probability of its
// path must reach an option (`worth`, `worth_of_draft` or `worth_of_runner_up`). With "budget": "auto" the
// model's chain has only as many tokens as are worth their time, by the measured costs and the acceptance so
// far, and the rest of the tree is cut to what is worth its time.
//
// Paper:       Oliaro et al. 2024, SuffixDecoding (copies, hybrid with a model); He et al. 2024, REST
//              (datastore); Miao et al. 2024, SpecInfer (one tree from several drafters); runner-ups as in
//              Cai et al. 2024, Medusa.
// Draft cost:  microseconds for copies; the draft's forwards when the best copy is not sure.
// Loses when:  tau - 1 is less than the cost, in target forwards, of the extra rows and the draft's forwards.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"
#include "core/decoding/drafting/retrieval_tree.h"
#include "core/decoding/drafting/suffix_memory.h"

namespace speclab {
namespace {

constexpr int kDepth = 64;

enum Source : unsigned { kDraft, kText, kEarlier, kDatastore, kSources };
constexpr std::array<std::string_view, kSources> kNames = {"draft", "text", "earlier", "datastore"};

/// The name that the record gives to a draft whose nodes come from these sources, such as "draft+text".
/// `sources` has one bit for each source.
std::string_view name_of(unsigned sources) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(1U << kSources);
    for (unsigned set = 0; set < all.size(); ++set) {
      for (unsigned source = 0; source < kSources; ++source) {
        if ((set >> source & 1) == 0) continue;
        if (!all[set].empty()) all[set] += '+';
        all[set] += kNames[source];
      }
    }
    return all;
  }();
  return names[sources];
}

std::vector<Source> sources_of(const std::vector<std::string>& names) {
  static const std::vector<std::string> known(kNames.begin(), kNames.end());
  std::vector<Source> out;
  for (const std::string& name : names) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
      throw Error({"composition: sources", "\"" + name + "\"",
                   "\"text\", \"earlier\", \"datastore\" or \"draft\"", suggest(name, known)});
    }
    out.push_back(static_cast<Source>(found - kNames.begin()));
    if (std::count(out.begin(), out.end(), out.back()) > 1)
      throw Error({"composition: sources", "\"" + name + "\" twice", "each source once", ""});
  }
  if (out.empty())
    throw Error(
        {"composition: sources", "an empty list", "\"text\", \"earlier\", \"datastore\" or \"draft\"", ""});
  return out;
}

enum class Order { first, tree, listed };

struct CompositionOptions {
  std::vector<std::string> sources = {"text", "draft"};
  std::string datastore;
  Order order = Order::tree;
  double sure = .45;
  double worth = .25;
  double worth_of_draft = .12;
  double worth_of_runner_up = .2;
  int length = 5;
  int nodes = 5;
  // Fitted by scripts/fit/fit_trust.py to greedy texts of SmolLM2-135M-Instruct for the prompts of
  // the split "fit" (configs/README.md); results/fits/composition_trust.json has the spread. The
  // other defaults were chosen by hand.
  std::vector<double> trust = {.41, .57, .62, .72, .79, .79, .81, .84, .87, .88, .88, .9, .9, .9, .9, .97};
  bool runner_up = true;
  int remember_tokens = 1000000;
  CutBudgetOptions budget;
  DraftChainOptions chain;
  bool carries_memory() const { return std::ranges::find(sources, "earlier") != sources.end(); }
  CompositionOptions() {
    chain.gamma = 3;
    chain.schedule.schedule = ScheduleRule::product;
    chain.schedule.product_threshold = .5;
  }
  void fields(OptionVisitor& visit) {
    visit("sources", sources,
          "list of \"text\" (prompt and output), \"earlier\" (outputs for earlier prompts; prompts are then "
          "decoded in the order of their file), \"datastore\" and \"draft\"");
    visit("datastore", datastore, "file made by `speclab datastore build`, for the source \"datastore\"");
    visit(
        "order", order, {{Order::first, "first"}, {Order::tree, "tree"}, {Order::listed, "listed"}},
        "first: the best copy if it is sure, otherwise the model; tree: the copies if the best one is sure, "
        "otherwise all tokens that are worth a row, as one tree; listed: the first of `sources` that finds "
        "anything");
    visit("sure", sure, Range<double>{0, 1},
          "a copy is sure if its first token has at least this probability; if the best copy is sure, the "
          "model does not draft. Not used with order listed");
    visit("worth", worth, Range<double>{0, 1},
          "a copied token is verified if its path has at least this probability");
    visit("worth_of_draft", worth_of_draft, Range<double>{0, 1},
          "a token of the draft model is verified if its path has at least this probability; only at "
          "temperature 0, because drawn tokens are always verified");
    visit("worth_of_runner_up", worth_of_runner_up, Range<double>{0, 1},
          "a second best token of the draft model is verified if its path has at least this probability");
    visit("length", length, Range<int>{1, 64}, "largest number of tokens to copy");
    visit("nodes", nodes, Range<int>{1, 64},
          "a tree with this many drafted tokens gets no more copies and runner-ups");
    visit("trust", trust, Range<double>{0, 1},
          "factor on the frequency of a copy after 1, 2, ... matching tokens; the last entry also holds for "
          "longer matches");
    visit("runner_up", runner_up, "draft the model's second best tokens too, if they are worth a row");
    visit("remember_tokens", remember_tokens, Range<int>{16, 1 << 27}, "tokens that \"earlier\" keeps");
    budget.fields(visit);
    chain.fields(visit);
  }
};

class Composition final : public Strategy {
 public:
  Composition(const CompositionOptions& options, const Resources& resources)
      : options_(options),
        sources_(sources_of(options.sources)),
        memory_(kDepth, has(kEarlier) ? SuffixMemory::Remember::outputs : SuffixMemory::Remember::nothing,
                static_cast<std::size_t>(options.remember_tokens), resources) {
    copying_.length = options_.length;
    copying_.factor = 64;  // so large that it does not limit a copy; the trust does
    copying_.min_probability = options_.worth;
    copying_.trust = options_.trust;
    if (has(kDatastore) == options_.datastore.empty()) {
      throw Error({"composition: datastore", options_.datastore.empty() ? "no file" : options_.datastore,
                   "a file if \"datastore\" is among the sources, otherwise none",
                   "Build one with `speclab datastore build`, or change the sources."});
    }
    if (has(kDatastore)) {
      store_ = Datastore::open(options_.datastore);
      store_->require(resources.target->config().vocab, resources.target->tokenizer_sha256());
      retrieved_.emplace(
          RetrievalOptions{.length = std::min(options_.length, kMostRetrieved), .nodes = options_.nodes});
    }
    if (has(kDraft) && resources.draft) {  // without a model only the copies draft
      chain_ = std::make_unique<DraftChain>(options_.chain, resources, options_.budget.rule);
      chain_->leave_out_below(options_.worth_of_draft);
      if (options_.order == Order::tree && options_.runner_up) chain_->want_runner_ups();
    }
    slots_.resize(static_cast<std::size_t>(resources.batch));
    for (Slot& slot : slots_) {
      for (Copy& copy : slot.copies) copy.nodes.reserve(kMostNodes);
    }
    place_.reserve(kMostNodes);
    doubt_.reserve(kMostNodes);
    depth_.reserve(kMostNodes);
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
      look_up(*sequences[i], slot);
      if (chain_ && wants_model(slot)) {
        modelled_.push_back(sequences[i]);
        modelled_drafts_.push_back(drafts[i]);
      } else {
        add_copies(slot, *drafts[i]);
      }
    }
    if (modelled_.empty()) return;
    chain_->draft(modelled_, modelled_drafts_);
    for (std::size_t i = 0; i < modelled_.size(); ++i) {
      Draft& draft = *modelled_drafts_[i];
      Slot& slot = slots_[static_cast<std::size_t>(modelled_[i]->slot)];
      slot.by_model = draft.tree.drafted();
      if (options_.order == Order::tree) {
        add_runner_ups(*modelled_[i], slot, draft);
        add_copies(slot, draft);
      } else if (slot.by_model == 0 && options_.budget.automatic()) {
        add_copies(slot,
                   draft);  // the model is not worth its time; a copy that is not sure may be worth a row
      } else {
        draft.source = name_of(draft.tree.drafted() > 0 ? 1U << kDraft : 0);
      }
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      memory_.catch_up(*sequences[i]);
      if (!chain_) continue;
      // Nodes 1 to by_model are the model's chain; nodes of other sources come after it.
      const int drafted = slots_[static_cast<std::size_t>(sequences[i]->slot)].by_model;
      const auto& path = outcomes[i].acceptance->path;
      const auto accepted =
          std::count_if(path.begin(), path.end(), [=](int node) { return node <= drafted; });
      chain_->observe(*sequences[i], drafted, static_cast<int>(accepted));
    }
  }

 private:
  using Node = SuffixSpeculation::Node;
  static constexpr int kMostNodes =
      64;  // of one copy; equals the upper limit of the options `nodes` and `length`
  static constexpr int kMostRetrieved = 31;  // tokens of a continuation, see RetrievalOptions

  struct Copy {
    Source source = kText;
    double score = 0;  // sum of the probabilities
    std::vector<Node> nodes;
  };
  struct Slot {
    std::array<Copy, kSources - 1>
        copies;  // the first `found` are copies of sources that found something, in the order of look_up()
    std::size_t found = 0;
    int by_model = 0;  // nodes of the current draft that belong to the model's chain
  };

  bool has(Source source) const {
    return std::find(sources_.begin(), sources_.end(), source) != sources_.end();
  }

  // Looks up the copies of each source. Sorts them best first, or leaves them in the listed order if the
  // order is "listed".
  void look_up(const Sequence& sequence, Slot& slot) {
    slot.found = 0;
    for (const Source source : sources_) {
      if (source == kDraft) continue;
      Copy& copy = slot.copies[slot.found];
      copy.source = source;
      copy.score = 0;
      copy.nodes.clear();
      if (source == kDatastore) {
        retrieve(sequence, copy);
      } else {
        if (source == kText) memory_.from_text(sequence, copying_, speculation_);
        else memory_.from_earlier(sequence, copying_, speculation_);
        copy.nodes.assign(speculation_.nodes().begin(), speculation_.nodes().end());
        copy.score = speculation_.score();
      }
      if (!copy.nodes.empty()) ++slot.found;
    }
    if (options_.order == Order::listed) return;
    for (std::size_t i = 1; i < slot.found; ++i) {  // a stable sort that does not allocate
      for (std::size_t j = i; j > 0 && slot.copies[j].score > slot.copies[j - 1].score; --j)
        std::swap(slot.copies[j], slot.copies[j - 1]);
    }
  }

  void retrieve(const Sequence& sequence, Copy& copy) {
    retrieved_->run(*store_, sequence.tokens, sequence.depth_limit);
    const auto found = retrieved_->nodes();
    depth_.clear();
    for (const RetrievalTree::Node& node : found) {
      const auto parent = static_cast<std::size_t>(std::max(node.parent, 0));
      const bool root = node.parent < 0;
      depth_.push_back(root ? 1 : depth_[parent] + 1);
      const double above = root ? 1 : copy.nodes[parent].probability,
                   share = node.share / (root ? 1 : found[parent].share),
                   trust = SuffixSpeculation::trust(options_.trust,
                                                    retrieved_->match_length() + depth_.back() - 1);
      copy.nodes.push_back({node.token, node.parent, above * share * trust});
      copy.score += copy.nodes.back().probability;
    }
  }

  bool wants_model(const Slot& slot) const {
    if (options_.order != Order::listed)
      return slot.found == 0 || slot.copies[0].nodes.front().probability < options_.sure;
    for (const Source source : sources_) {
      if (source == kDraft) return true;
      if (slot.found > 0 && slot.copies[0].source == source) return false;
    }
    return false;
  }

  // Adds the model's second best tokens as siblings of its drafted ones. The second best tokens were not
  // drawn, so they are one-hot. A one-hot child after a drawn sibling keeps the text's distribution exact.
  void add_runner_ups(const Sequence& sequence, const Slot& slot, Draft& draft) const {
    double above = 1;  // probability of the chain up to the parent
    for (const DraftChain::RunnerUp& other : chain_->runner_ups(sequence)) {
      const int parent = other.depth - 1;
      if (parent > slot.by_model || draft.tree.drafted() >= options_.nodes) return;
      if (parent > 0) above *= draft.confidence[static_cast<std::size_t>(parent)];
      if (above * other.probability >= options_.worth_of_runner_up)
        draft.add(other.token, parent, Draft::kOneHot, other.probability);
    }
  }

  // Adds the first copy, or with order "tree" all copies, after the model's nodes.
  void add_copies(const Slot& slot, Draft& draft) {
    unsigned sources = 0;
    draft.contributions.clear();
    const auto credit = [&](Source source, int first) {
      if (draft.tree.drafted() < first) return;
      sources |= 1U << source;
      draft.contributions.push_back({first, kNames[source]});
    };
    credit(kDraft, 1);
    const std::size_t wanted =
        options_.order == Order::tree ? slot.found : std::min<std::size_t>(slot.found, 1);
    for (std::size_t i = 0; i < wanted; ++i) {
      const int first = draft.tree.drafted() + 1;
      add_copy(slot.copies[i].nodes, slot.by_model, draft);
      credit(slot.copies[i].source, first);
    }
    draft.source = name_of(sources);
    if (draft.contributions.size() < 2) draft.contributions.clear();
  }

  // Adds a copy to the tree and shares nodes that are already there. Sharing loses no accepted token.
  // A second child with the same token would be tested after the drawn one, and no exact rule accepts a token
  // that it has just rejected. Where the copy diverges from the model's chain, the copy's
  // probability is multiplied by (1 - the model's confidence in its own token) before it is compared with
  // `worth`.
  void add_copy(const std::vector<Node>& nodes, int by_model, Draft& draft) {
    place_.clear();  // node of each token of the copy; -1: this token and all after it are not worth a row
    doubt_.clear();
    for (const Node& node : nodes) {
      const auto parent = static_cast<std::size_t>(std::max(node.parent, 0));
      const bool root = node.parent < 0;
      const int at = root ? 0 : place_[parent];
      double doubt = root ? 1 : doubt_[parent];
      int place = at < 0 ? -1 : draft.tree.child(at, node.token);
      if (place == 0) {
        if (at < by_model) doubt = 1 - draft.confidence[static_cast<std::size_t>(at + 1)];
        const bool worth =
            node.probability * doubt >= options_.worth && draft.tree.drafted() < options_.nodes;
        const double above = root ? 1 : nodes[parent].probability;
        place = worth
                    ? draft.add(node.token, at, Draft::kOneHot, static_cast<float>(node.probability / above))
                    : -1;
      }
      place_.push_back(place);
      doubt_.push_back(doubt);
    }
  }

  CompositionOptions options_;
  std::vector<Source> sources_;  // in the listed order
  SuffixMemory memory_;
  SuffixSpeculationOptions copying_;
  SuffixSpeculation speculation_;
  std::optional<Datastore> store_;
  std::optional<RetrievalTree> retrieved_;
  std::unique_ptr<DraftChain> chain_;
  std::vector<Slot> slots_;  // [batch]
  std::vector<const Sequence*> modelled_;
  std::vector<Draft*> modelled_drafts_;
  std::vector<int> place_, depth_;
  std::vector<double> doubt_;
};

constexpr StrategyBenchmark kCompositionBenchmarks[] = {
    {"composition", R"({"sources": ["text"]})", BenchmarkKind::replayed}};

const RegisterStrategy<CompositionOptions, Composition> registered{{
    .name = "composition",
    .summary = "copies and a draft model together: the surest source alone, or a small tree of everything "
               "that is worth a row",
    .paper = "Oliaro et al. 2024, SuffixDecoding; Miao et al. 2024, SpecInfer",
    .draft_source = "copies from the text, earlier texts and a datastore; a small model when no copy is sure",
    .stop_rule = "estimated probability of a path; schedule of the small model",
    .verification = "chain; tree",
    .criterion = "any rule; q of the model, one-hot for the rest",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing, or a small model",
    .may_name_file = "datastore",
    .benchmarks = kCompositionBenchmarks,
}};

}  // namespace
}  // namespace speclab
