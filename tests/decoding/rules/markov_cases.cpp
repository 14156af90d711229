#include "tests/decoding/rules/markov_cases.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/ngrams/ngram_file.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/measure/run_result.h"
#include "tests/decoding/drafting/small_controller.h"
#include "tests/decoding/rules/independent_tree.h"

namespace speclab::markov {

using namespace fixtures;

namespace {

std::string file(const std::string& name) {
  static const TempDir dir;
  return (dir.path() / name).string();
}

std::string some_datastore() {
  Datastore::Builder builder(kVocab, "");
  for (const std::vector<Token>& document :
       std::vector<std::vector<Token>>{{0, 1, 2, 0}, {1, 2, 1}, {0, 1, 0, 2}, {2, 2}})
    builder.add(document);
  const std::string path = file("datastore");
  if (!std::filesystem::exists(path)) builder.write(path);
  return path;
}

std::string some_ngrams() {
  NgramFile::Builder builder(kVocab, "");
  builder.add(std::vector<Token>{0, 1, 2, 0, 1, 1, 2});
  const std::string path = file("ngrams");
  if (!std::filesystem::exists(path)) builder.write(path, 3);
  return path;
}

std::string some_tree() {
  const std::string path = file("tree");
  if (!std::filesystem::exists(path))
    write_json_file(path, {{"format", kTreeFormat}, {"parents", {0, 0, 2}}, {"ranks", {1, 2, 1}}});
  return path;
}

/// A tree file with three trees. The draft model of the cases is most confident after one token, least after
/// another, and a step after each of the three tokens drafts another tree.
std::string some_trees(const std::string& name, const std::vector<json>& trees) {
  const std::string path = file(name);
  if (std::filesystem::exists(path)) return path;
  const ModelPtr draft = random_markov(kVocab, 12, 1.5);
  std::vector<double> surest;
  for (Token token = 0; token < kVocab; ++token) {
    double most = 0;
    for (const auto& [text, p] : chain_law(draft, {.temperature = 1}, token, 1)) most = std::max(most, p);
    surest.push_back(most);
  }
  std::ranges::sort(surest);
  const double low = (surest[0] + surest[1]) / 2, high = (surest[1] + surest[2]) / 2;
  SPECLAB_CHECK(surest[0] < low && low < surest[1] && surest[1] < high && high < surest[2],
                "rows of equal confidence");
  const double ends[] = {0, low, high, 1};
  json ranges = json::array();
  for (std::size_t i = 0; i < 3; ++i) {
    ranges.push_back(trees[i]);
    ranges.back().update({{"from", ends[i]}, {"to", ends[i + 1]}});
  }
  json whole = {{"format", kTreesFormat}};
  whole["trees"] = ranges;
  write_json_file(path, whole);
  return path;
}

/// The options of a chain with a controller that predicts logistic((confidence - .4) / .2). The rows of the
/// draft model have tokens on both sides of .4, so drafts end early or not by what was drawn.
json controlled(const std::string& schedule, int gamma) {
  const std::string path = file(schedule);
  if (!std::filesystem::exists(path)) write_json_file(path, small_controller(schedule, .5, .4, .2));
  return {{"gamma", gamma}, {"schedule", schedule}, {"controller", path}};
}

json lists(const std::vector<int>& parents, const std::vector<int>& ranks) {
  return {{"parents", parents}, {"ranks", ranks}};
}

/// Marks a case whose drafts are chains.
Case of_chains(Case c) {
  c.children = Case::Children::chain;
  return c;
}

}  // namespace

StrategyChoice surest_few(const std::string& order) {
  return choose("composition", {{"gamma", 3},
                                {"order", order},
                                {"product_threshold", .3},
                                {"worth", .01},
                                {"worth_of_runner_up", .05},
                                {"sure", .9},
                                {"nodes", 3}});
}

bool takes(const AcceptanceRule& rule, const Case& c) {
  if (c.children == Case::Children::chain) return true;
  if (rule.chains_only) return false;
  if (rule.independent_paths_only) return c.children == Case::Children::independent_paths;
  return !rule.independent_children_only || c.children != Case::Children::any;
}

std::vector<Case> independent_cases() {
  const auto tree = [](std::string name, const IndependentShape& shape, Case::Children children) {
    return Case{.name = std::move(name),
                .strategy = StrategyChoice(independent_tree(shape)),
                .patient = false,
                .children = children};
  };
  using enum Case::Children;
  return {tree("independent children", {.widths = {3}}, independent_paths),
          tree("independent paths", {.widths = {2, 1}}, independent_paths),
          tree("independent paths that end early", {.widths = {2, 1}, .least = .4}, independent_paths),
          tree("independent tree", {.widths = {1, 2}}, independent),
          tree("independent tree that ends early", {.widths = {1, 2}, .least = .4}, independent)};
}

std::vector<Case> small_cases() {
  std::vector<Case> all;
  all.push_back(of_chains({"autoregressive", choose("autoregressive")}));
  all.push_back(of_chains({"speculative gamma 1", choose("speculative_sampling", {{"gamma", 1}})}));
  all.push_back(of_chains({"speculative gamma 2", choose("speculative_sampling", {{"gamma", 2}})}));
  all.push_back(of_chains(
      {"speculative hot draft",
       choose("speculative_sampling", {{"gamma", 2}, {"draft_temperature", 2}, {"draft_top_k", 2}})}));
  all.push_back(
      of_chains({"speculative confidence",
                 choose("speculative_sampling",
                        {{"gamma", 2}, {"schedule", "confidence"}, {"confidence_threshold", .4}})}));
  all.push_back(of_chains(
      {"speculative product",
       choose("speculative_sampling", {{"gamma", 2}, {"schedule", "product"}, {"product_threshold", .4}})}));
  // The threshold moves far enough from step to step to stop other drafts.
  all.push_back(of_chains(
      {"speculative adaptive confidence", choose("speculative_sampling", {{"gamma", 2},
                                                                          {"schedule", "adaptive_confidence"},
                                                                          {"first_threshold", .3},
                                                                          {"threshold_step", 1}})}));
  // The rows of this draft have roots of the entropy from .7 to 1.
  all.push_back(of_chains(
      {"speculative entropy",
       choose("speculative_sampling", {{"gamma", 2}, {"schedule", "entropy"}, {"entropy_threshold", .9}})}));
  all.push_back(of_chains(
      {"speculative adaptive entropy", choose("speculative_sampling", {{"gamma", 2},
                                                                       {"schedule", "adaptive_entropy"},
                                                                       {"first_threshold", .5},
                                                                       {"threshold_step", 1}})}));
  all.push_back(of_chains({"speculative threshold of the least cost",
                           choose("speculative_sampling", {{"gamma", 2},
                                                           {"schedule", "roc_confidence"},
                                                           {"confidence_threshold", .2},
                                                           {"least_samples", 2}})}));
  all.push_back(of_chains(
      {"speculative bandit", choose("speculative_sampling", {{"gamma", 2}, {"schedule", "bandit"}})}));
  all.push_back(of_chains(
      {"speculative goodput", choose("speculative_sampling", {{"gamma", 2}, {"schedule", "goodput"}})}));
  all.push_back(
      of_chains({"speculative classifier", choose("speculative_sampling", controlled("disco", 2))}));
  all.push_back(of_chains(
      {"speculative predicted rejection", choose("speculative_sampling", controlled("specdec_pp", 2))}));
  all.push_back(of_chains(
      {"speculative heuristic", choose("speculative_sampling", {{"gamma", 1}, {"schedule", "heuristic"}})}));
  all.push_back(of_chains(
      {.name = "a draft that learns after every step",
       .strategy = choose("online_speculation", {{"gamma", 2}, {"learning_rate", 1}, {"update_every", 1}}),
       .patient = false}));
  all.push_back({"draft tree", choose("tree_speculation", {{"widths", {2, 1}}})});
  all.push_back({"draft tree of all tokens", choose("tree_speculation", {{"widths", {3}}})});
  all.push_back(
      {"draft tree, hot, of more tokens than have mass",
       choose("tree_speculation", {{"widths", {2, 2}}, {"draft_temperature", 2}, {"draft_top_k", 1}})});
  all.push_back({"draft tree of the best tokens",
                 choose("tree_speculation", {{"widths", {2, 2}}, {"draft_temperature", 0}})});
  const auto tree = [](json options) { return choose("tree_speculation", options); };
  all.push_back({.name = "tree, independent children",
                 .strategy = tree({{"widths", {2, 1}}, {"children", "independent"}}),
                 .children = Case::Children::independent_paths});
  all.push_back({.name = "tree, two independent sequences",
                 .strategy = tree({{"sequences", 2}, {"length", 2}}),
                 .children = Case::Children::independent_paths});
  all.push_back({"tree, best children", tree({{"widths", {2, 2}}, {"children", "best"}})});
  all.push_back({"tree, uniform draws where no mass is left",
                 tree({{"widths", {3}}, {"draft_top_k", 1}, {"used_up", "uniform"}})});
  all.push_back({"tree of a file", tree({{"tree", some_tree()}})});
  const std::vector<json> of_rows = {lists({}, {}), lists({0, 0, 1, 2}, {1, 2, 1, 1}), lists({0, 1}, {1, 1})},
                          of_paths = {lists({0, 0}, {1, 2}), lists({0, 0, 1, 2}, {1, 2, 1, 1}),
                                      lists({0, 1}, {1, 1})};
  all.push_back({"trees by confidence", tree({{"tree", some_trees("trees", of_rows)}})});
  all.push_back(
      {"trees by confidence, hot, of more tokens than have mass",
       tree({{"tree", some_trees("paths", of_paths)}, {"draft_temperature", 2}, {"draft_top_k", 1}})});
  all.push_back({.name = "trees by confidence, independent children",
                 .strategy = tree({{"tree", some_trees("paths", of_paths)}, {"children", "independent"}}),
                 .children = Case::Children::independent_paths});
  all.push_back(
      {"dynamic tree", choose("dynamic_tree", {{"depth", 2}, {"expand", 2}, {"branches", 2}, {"nodes", 4}})});
  all.push_back(
      {"dynamic tree, nodes by their cost",
       choose(
           "dynamic_tree",
           {{"depth", 2}, {"expand", 2}, {"branches", 3}, {"rows", {1, 6}}, {"times", {1, 2}}, {"c", .2}})});
  all.push_back(of_chains({"lookup", choose("prompt_lookup", {{"length", 2}}), {0, 1, 2, 0, 1}}));
  all.push_back(of_chains(
      {"lookup, draft where nothing matches",
       choose("prompt_lookup", {{"length", 2}, {"gamma", 2}, {"ngram_min", 2}, {"fallback", "draft"}}),
       {0, 1, 2, 0, 1}}));
  all.push_back(
      {"lookup and draft as a tree",
       choose("prompt_lookup", {{"length", 2}, {"gamma", 2}, {"fallback", "draft"}, {"merge", "tree"}}),
       {0, 1, 2, 0, 1}});
  const auto lookahead = [&](json options) {
    options["pool_from_prompt"] = true;
    return choose("lookahead", options);
  };
  all.push_back({"lookahead", lookahead({{"W", 2}, {"N", 3}, {"G", 3}}), {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back(
      {"lookahead of bigrams", lookahead({{"W", 3}, {"N", 2}, {"G", -1}}), {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back({"lookahead, window accepted",
                 lookahead({{"W", 3}, {"N", 2}, {"G", 2}, {"accept_window", true}}),
                 {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back(of_chains({"jacobi", choose("jacobi", {{"block", 3}})}));
  const std::string datastore = some_datastore();
  all.push_back(
      {"retrieved tree",
       choose("retrieval", {{"datastore", datastore}, {"ngram_min", 1}, {"length", 2}, {"nodes", 5}})});
  for (Case& c : head_cases()) all.push_back(std::move(c));
  const std::string ngrams = some_ngrams();
  all.push_back(of_chains({"n-grams of the text, Katz",
                           choose("ngram_model", {{"gamma", 2}, {"smoothing", "katz"}, {"known", 0}}),
                           {0, 1, 2, 0, 1},
                           false}));
  all.push_back(of_chains({"n-grams of the text where known",
                           choose("ngram_model", {{"gamma", 2}, {"smoothing", "kneser_ney"}, {"order", 2}}),
                           {0, 1, 2, 0, 1},
                           false}));
  all.push_back(of_chains({"n-grams of text and file",
                           choose("ngram_model", {{"gamma", 1}, {"counts", "both"}, {"file", ngrams}}),
                           {0, 2, 1},
                           false}));
  all.push_back({"suffix tree",
                 choose("suffix_decoding", {{"length", 3}, {"factor", 3}, {"tree", true}}),
                 {0, 1, 2, 0, 1}});
  all.push_back(of_chains({"copies from the prompt",
                           choose("prompt_lookup", {{"length", 2}, {"reference", "prompt"}}),
                           {0, 1, 2, 0, 1}}));
  all.push_back({"lookup with a budget",
                 choose("prompt_lookup", {{"length", 2}, {"candidates", 2}, {"budget", "auto"}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"recycled tree with a budget",
                 choose("token_recycling", {{"k", 2}, {"tree", {2, 1, 1}}, {"budget", "auto"}})});
  // Tokens are drawn, and how much is drafted depends on what earlier steps accepted.
  const auto with_budget = [](const char* strategy, json options) {
    options["budget"] = "auto";
    return choose(strategy, options);
  };
  all.push_back(of_chains({"chain with a budget", with_budget("speculative_sampling", {{"gamma", 3}})}));
  all.push_back(
      of_chains({"chain with a budget and a schedule",
                 with_budget("speculative_sampling",
                             {{"gamma", 3}, {"schedule", "confidence"}, {"confidence_threshold", .4}})}));
  all.push_back({"tree with a budget", with_budget("tree_speculation", {{"widths", {2, 1}}})});
  all.push_back(
      {.name = "tree with a budget, independent children",
       .strategy = with_budget("tree_speculation", {{"widths", {2, 2}}, {"children", "independent"}}),
       .children = Case::Children::independent});
  all.push_back({"dynamic tree with a budget",
                 with_budget("dynamic_tree", {{"depth", 2}, {"expand", 2}, {"branches", 2}, {"nodes", 4}})});
  all.push_back(of_chains({"n-grams with a budget",
                           with_budget("ngram_model", {{"gamma", 2}, {"known", 0}}),
                           {0, 1, 2, 0, 1},
                           false}));
  all.push_back(of_chains({"jacobi with a budget", with_budget("jacobi", {{"block", 3}})}));
  all.push_back({"lookahead with a budget",
                 with_budget("lookahead", {{"W", 1}, {"N", 2}, {"G", 3}, {"pool_from_prompt", true}}),
                 {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back(
      {"lookup and draft as a tree with a budget",
       with_budget("prompt_lookup", {{"length", 2}, {"gamma", 2}, {"fallback", "draft"}, {"merge", "tree"}}),
       {0, 1, 2, 0, 1}});
  all.push_back({"composition with a budget",
                 with_budget("composition", {{"gamma", 2},
                                             {"product_threshold", .3},
                                             {"worth", .01},
                                             {"worth_of_runner_up", .05},
                                             {"sure", 1},
                                             {"nodes", 4}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"cascade with a budget", with_budget("cascade", {{"k", {2, 2, 0, 2}}}), {0, 1, 2, 0, 1}});
  all.push_back(
      {.name = "cascade of two models with a budget, lenient inside",
       .strategy = with_budget("cascade", {{"k", {1, 1, 1, 0, 1, 1, 0, 0, 1}}, {"inner_lenience", 2}}),
       .prompt = {0, 1, 2, 0, 1},
       .drafts = 2});
  all.push_back(of_chains(
      {.name = "hierarchy with a budget",
       .strategy = with_budget(
           "hierarchical_speculation",
           {{"gamma", 3}, {"inner_gamma", 2}, {"first", 0}, {"last", 0}, {"draft_temperature", .6}}),
       .divides = false}));
  all.push_back({"staged chain with a budget",
                 with_budget("staged", {{"widths", {1, 1, 1}}, {"ahead", 2}, {"known", 0}})});
  all.push_back({.name = "staged tree with a budget, guesses of a model",
                 .strategy = with_budget("staged", {{"widths", {2, 1}}, {"ahead", 1}, {"branches", 2}}),
                 .drafts = 2});
  all.push_back({.name = "merged chains of two models with a budget",
                 .strategy = with_budget("merged_trees", {{"length", 2}, {"sources", {"draft"}}}),
                 .patient = false,
                 .drafts = 2});
  all.push_back(
      {.name = "merged chains and a copy with a budget, few nodes",
       .strategy = with_budget("merged_trees", {{"length", 2}, {"copies", 2}, {"nodes", 3}, {"worth", .35}}),
       .prompt = {0, 1, 2, 0, 1},
       .patient = false,
       .drafts = 2});
  const auto selection = [](const char* way, const json& options) {
    json all = {{"copies", 2}, {"least_match", 1}, {"choose", way}};
    all.update(options);
    return all;
  };
  all.push_back(
      of_chains({.name = "selection by a bandit, two models and copies",
                 .strategy = choose("selection", selection("bandit", {{"gamma", 2}, {"c", {.2, .5}}})),
                 .prompt = {0, 1, 2, 0, 1},
                 .drafts = 2}));
  all.push_back(
      of_chains({.name = "selection by a forgetful bandit with a budget, two models and copies",
                 .strategy = with_budget("selection", selection("bandit", {{"gamma", 2}, {"memory", .6}})),
                 .prompt = {0, 1, 2, 0, 1},
                 .drafts = 2}));
  all.push_back(of_chains(
      {.name = "selection by the best score of two models",
       .strategy =
           choose("selection",
                  selection("full_information",
                            {{"sources", {"draft"}}, {"learner", "leader"}, {"memory", .7}, {"gamma", 1}})),
       .patient = false,
       .drafts = 2}));
  all.push_back(
      of_chains({.name = "selection at random by the scores of a model and copies",
                 .strategy = choose(
                     "selection", selection("full_information", {{"gamma", 1}, {"copies", 1}, {"rate", 2}})),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false}));
  all.push_back(
      of_chains({.name = "selection by the best score with a budget",
                 .strategy = with_budget(
                     "selection", selection("full_information", {{"learner", "leader"}, {"gamma", 2}})),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false}));
  all.push_back({"recycled tree", choose("token_recycling", {{"k", 2}, {"tree", {2, 1, 1}}})});
  all.push_back({"copies, chain and runners-up as a tree",
                 choose("composition",
                        {{"gamma", 2}, {"worth", .01}, {"worth_of_runner_up", 0}, {"sure", 1}, {"nodes", 9}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"copies of text and datastore, and a chain, as a tree",
                 choose("composition", {{"gamma", 1},
                                        {"sources", {"text", "datastore", "draft"}},
                                        {"datastore", datastore},
                                        {"worth", .01},
                                        {"worth_of_runner_up", 1},
                                        {"sure", 1},
                                        {"length", 2},
                                        {"nodes", 6}}),
                 {0, 1, 2, 0, 1}});
  all.push_back(of_chains(
      {"cascade, a model reviews copies", choose("cascade", {{"k", {2, 1, 0, 2}}}), {0, 1, 2, 0, 1}}));
  all.push_back(
      of_chains({.name = "cascade of two models, lenient inside",
                 .strategy = choose("cascade", {{"k", {1, 1, 1, 0, 1, 1, 0, 0, 1}}, {"inner_lenience", 2}}),
                 .prompt = {0, 1, 2, 0, 1},
                 .drafts = 2}));
  all.push_back(of_chains({.name = "hierarchy of two levels",
                           // A Markov model has no cache, so the sparse target is the target. The temperature
                           // makes its law another.
                           .strategy = choose("hierarchical_speculation",
                                              {{"gamma", 2}, {"inner_gamma", 1}, {"draft_temperature", .6}}),
                           .divides = false}));
  all.push_back(
      of_chains({"staged chain", choose("staged", {{"widths", {1, 1}}, {"ahead", 2}, {"known", 0}})}));
  all.push_back({.name = "staged tree, guesses of a model",
                 .strategy = choose("staged", {{"widths", {2, 1}}, {"ahead", 1}, {"branches", 2}}),
                 .drafts = 2});
  all.push_back({.name = "merged chains of two models",
                 .strategy = choose("merged_trees", {{"length", 2}, {"sources", {"draft"}}}),
                 .patient = false,
                 .children = Case::Children::independent,
                 .drafts = 2});
  all.push_back(
      {.name = "merged chains and a copy, few nodes",
       .strategy = choose("merged_trees", {{"length", 2}, {"copies", 2}, {"nodes", 3}, {"worth", .35}}),
       .prompt = {0, 1, 2, 0, 1},
       .patient = false,
       .drafts = 2});
  all.push_back(
      {.name = "merged, two chains of one model",
       .strategy = choose("merged_trees", {{"length", 2}, {"sequences", {2}}, {"sources", {"draft"}}}),
       .patient = false,
       .children = Case::Children::independent});
  const auto mixed = [](int length, std::vector<std::string> sources, int ngram_sequences = 1) {
    return json{{"sources", std::move(sources)},
                {"length", length},
                {"copies", 2},
                {"nodes", 4},
                {"ngram_known", 0},
                {"ngram_sequences", ngram_sequences},
                {"ngram_smoothing", "katz"}};
  };
  all.push_back({.name = "merged: a model, n-grams and a copy",
                 .strategy = choose("merged_trees", mixed(1, {"draft", "ngram", "text"})),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false});
  all.push_back({.name = "merged: n-grams and a copy, no model",
                 .strategy = choose("merged_trees", mixed(2, {"ngram", "text"})),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false,
                 .drafts = 0});
  all.push_back({.name = "merged: a model, n-grams and a copy with a budget",
                 .strategy = with_budget("merged_trees", mixed(1, {"draft", "ngram", "text"})),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false});
  all.push_back({.name = "merged: n-grams and a copy with a budget, no model",
                 .strategy = with_budget("merged_trees", mixed(2, {"ngram", "text"}, 2)),
                 .prompt = {0, 1, 2, 0, 1},
                 .patient = false,
                 .drafts = 0});
  all.push_back(of_chains({"simulated", choose("simulated", {{"gamma", 2}, {"alpha", .6}})}));
  return all;
}

std::vector<Case> all_cases() {
  const std::vector<Token> repeats{0, 1, 2, 0, 1, 0, 2, 1, 1};
  const auto chain = [](json options) { return choose("speculative_sampling", options); };
  const auto tree = [](std::vector<int> widths) { return choose("tree_speculation", {{"widths", widths}}); };
  std::vector<Case> all = small_cases();
  for (Case& c : independent_cases()) all.push_back(std::move(c));
  all.push_back({.name = "three independent paths",
                 .strategy = StrategyChoice(independent_tree({.widths = {3, 1, 1}})),
                 .patient = false,
                 .children = Case::Children::independent_paths});
  all.push_back({.name = "independent tree of pairs",
                 .strategy = StrategyChoice(independent_tree({.widths = {2, 2, 2}, .least = .2})),
                 .patient = false,
                 .children = Case::Children::independent});
  all.push_back({.name = "merged: chains of a model and of n-grams, and a copy that has matched twice",
                 .strategy = choose("merged_trees", {{"sources", {"draft", "ngram", "text"}},
                                                     {"length", 3},
                                                     {"copies", 3},
                                                     {"least_match", 2},
                                                     {"nodes", 7},
                                                     {"worth", .05},
                                                     {"ngram_known", 0},
                                                     {"ngram_sequences", 2}}),
                 .prompt = repeats,
                 .patient = false});
  all.push_back(of_chains({"speculative gamma 3", chain({{"gamma", 3}})}));
  all.push_back(of_chains({.name = "speculative gamma 5", .strategy = chain({{"gamma", 5}}), .length = 7}));
  all.push_back(of_chains({"speculative gamma 4, confidence",
                           chain({{"gamma", 4}, {"schedule", "confidence"}, {"confidence_threshold", .4}})}));
  all.push_back(of_chains({"speculative gamma 4, product",
                           chain({{"gamma", 4}, {"schedule", "product"}, {"product_threshold", .2}})}));
  all.push_back(
      of_chains({"speculative gamma 2, heuristic", chain({{"gamma", 2}, {"schedule", "heuristic"}})}));
  all.push_back(of_chains({"speculative gamma 4, entropy",
                           chain({{"gamma", 4}, {"schedule", "entropy"}, {"entropy_threshold", .9}})}));
  all.push_back(of_chains({"speculative gamma 4, threshold of the least cost",
                           chain({{"gamma", 4}, {"schedule", "roc_confidence"}, {"least_samples", 2}})}));
  all.push_back(of_chains({"speculative gamma 4, classifier", chain(controlled("disco", 4))}));
  all.push_back(of_chains({"speculative gamma 4, predicted rejection", chain(controlled("specdec_pp", 4))}));
  all.push_back(
      of_chains({"n-grams of the text, adaptive entropy",
                 choose("ngram_model", {{"gamma", 4}, {"schedule", "adaptive_entropy"}, {"known", 0}}),
                 repeats, false}));
  all.push_back({"draft tree of pairs", tree({2, 2, 2})});
  all.push_back({"draft tree that branches late", tree({1, 3})});
  all.push_back({"draft tree, wide", tree({3, 2, 1, 1})});
  all.push_back(
      {"draft tree, cool",
       choose("tree_speculation", {{"widths", {3, 2}}, {"draft_temperature", .6}, {"draft_top_p", .9}})});
  all.push_back(of_chains({"n-grams of the text, confidence",
                           choose("ngram_model", {{"gamma", 4}, {"schedule", "confidence"}, {"known", 0}}),
                           repeats, false}));
  for (const int candidates : {1, 2}) {
    all.push_back({"lookup and draft as a tree, " + std::to_string(candidates),
                   choose("prompt_lookup", {{"length", 3},
                                            {"gamma", 3},
                                            {"fallback", "draft"},
                                            {"merge", "tree"},
                                            {"schedule", "confidence"},
                                            {"candidates", candidates}}),
                   repeats});
  }
  all.push_back({.name = "hierarchy, longer chains",
                 .strategy = choose("hierarchical_speculation",
                                    {{"gamma", 4}, {"inner_gamma", 2}, {"draft_temperature", 1.5}}),
                 .divides = false});
  for (const char* order : {"tree", "first"})
    all.push_back({std::string("composition of the surest few, ") + order, surest_few(order), repeats});
  return all;
}

}  // namespace speclab::markov
