// Retrieval: looks up the longest suffix of the text that occurs in a datastore of other texts. The
// continuations found there form a tree. The weight of a node is the share of the continuations that begin
// with the path to it. The nodes of the largest weights are drafted, with one-hot q. The confidence of a node
// is its weight divided by the weight of its parent.
//
// Paper:       He et al. 2024, "REST: Retrieval-Based Speculative Decoding". Their sampling mode draws the
//              target's token anew for each path, and throws it away if it does not match the path. So
//              tokens of the datastore are emitted too often. Here the ordinary verifier judges the tree, so
//              every lossless rule stays exact.
// Draft cost:  a few binary searches in a memory-mapped suffix array, which take microseconds.
// Loses when:  the datastore is about other topics, or target rows are expensive. A match of two tokens is
//              often a coincidence.

#include <string>

#include "core/decoding/drafting/datastore.h"
#include "core/decoding/registry.h"
#include "core/decoding/drafting/retrieval_tree.h"

namespace speclab {
namespace {

struct DatastoreOptions {
  std::string datastore;
  RetrievalOptions tree;
  CutBudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("datastore", datastore, "file made by `speclab datastore build`; required");
    tree.fields(visit);
    budget.fields(visit);
  }
};

class Retrieval final : public Strategy {
 public:
  // `needs_file` below makes sure that a datastore is named.
  Retrieval(const DatastoreOptions& options, const Resources& resources)
      : store_(Datastore::open(options.datastore)), tree_(options.tree) {
    store_.require(resources.target->config().vocab, resources.target->tokenizer_sha256());
  }

  void begin(const Sequence&) override {}

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      tree_.run(store_, sequences[i]->tokens, sequences[i]->depth_limit);
      for (const RetrievalTree::Node& node : tree_.nodes()) {  // node i is node i + 1 of the draft
        const double above = node.parent < 0 ? 1 : tree_.nodes()[static_cast<std::size_t>(node.parent)].share;
        drafts[i]->add(node.token, node.parent + 1, Draft::kOneHot, static_cast<float>(node.share / above));
      }
      if (!tree_.nodes().empty()) drafts[i]->source = "retrieval";
    }
  }

 private:
  Datastore store_;
  RetrievalTree tree_;
};

constexpr StrategyBenchmark kRetrievalBenchmarks[] = {{"retrieval", "{}", BenchmarkKind::from_datastore}};

const RegisterStrategy<DatastoreOptions, Retrieval> registered{{
    .name = "retrieval",
    .summary = "continuations of the longest suffix of the text that a datastore of other texts contains, as "
               "a weighted tree",
    .paper = "He et al. 2024, REST",
    .draft_source = "copies from a datastore",
    .stop_rule = "limits on nodes and length",
    .verification = "tree",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing; a datastore is built",
    .needs_file = "datastore",
    .benchmarks = kRetrievalBenchmarks,
}};

}  // namespace
}  // namespace speclab
