#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/decoding/rules/markov_cases.h"
#include "tests/model/heads/random_heads.h"

// The cases of strategies with trained heads.

namespace speclab::markov {

using namespace fixtures;

namespace {

/// Random heads for the chains: the state after a token is the token, as a one-hot vector.
std::string some_head(const std::string& kind, int blocks = 1, int heads = 2) {
  static const TempDir dir;
  const std::string path = (dir.path() / (kind + std::to_string(blocks) + std::to_string(heads))).string();
  if (!std::filesystem::exists(path))
    write_random_head(path, kind, random_markov(kVocab, 11, 1.5)->config(),
                      {.heads = heads, .blocks = blocks, .inner = 4});
  return path;
}

/// Marks a case whose drafts are chains.
Case chain_of_head(Case c) {
  c.children = Case::Children::chain;
  return c;
}

}  // namespace

std::vector<Case> drawn_chains_of_heads() {
  std::vector<Case> all;
  for (const char* kind :
       {"blockwise", "medusa", "hydra", "mlp_speculator", "eagle", "block_draft", "pass"}) {
    json options = {{"head", some_head(kind)}, {"widths", {1, 1}}, {"children", "without_replacement"}};
    if (std::string(kind) == "eagle") options["shape"] = "fixed";
    all.push_back(
        chain_of_head({.name = kind, .strategy = choose(kind, options), .patient = false, .divides = false}));
  }
  return all;
}

std::vector<Case> head_cases() {
  std::vector<Case> all;
  const auto heads = [](const char* kind, json options) {
    options["head"] = some_head(kind);
    return choose(kind, options);
  };
  all.push_back(chain_of_head({.name = "a block of heads in two phases, drawn",
                               .strategy = heads("blockwise", {{"phases", "two_phase"},
                                                               {"widths", {1, 1}},
                                                               {"children", "without_replacement"},
                                                               {"budget", "fixed"}}),
                               .patient = false,
                               .divides = false}));
  all.push_back({.name = "a block of heads",
                 .strategy = heads("blockwise", {{"widths", {2, 1}}}),
                 .patient = false,
                 .divides = false});
  all.push_back({.name = "independent heads",
                 .strategy = heads("medusa", {{"widths", {2, 1}}}),
                 .patient = false,
                 .divides = false});
  all.push_back({.name = "independent heads, drawn",
                 .strategy = heads("medusa", {{"widths", {2, 1}}, {"children", "without_replacement"}}),
                 .patient = false,
                 .divides = false});
  all.push_back(
      chain_of_head({.name = "sequential heads, drawn",
                     .strategy = heads("hydra", {{"widths", {1, 1}}, {"children", "without_replacement"}}),
                     .patient = false,
                     .divides = false}));
  all.push_back({.name = "layers of a speculator with a budget",
                 .strategy = heads("mlp_speculator", {{"widths", {2, 1}}, {"budget", "auto"}}),
                 .patient = false,
                 .divides = false});
  all.push_back({.name = "likely tree of a head with its own layer",
                 .strategy = heads("eagle", {{"depth", 2}, {"branches", 2}, {"expand", 1}, {"nodes", 3}}),
                 .patient = false,
                 .divides = false});
  all.push_back({.name = "fixed tree of a head with its own layer, drawn",
                 .strategy = heads(
                     "eagle", {{"shape", "fixed"}, {"widths", {2, 1}}, {"children", "without_replacement"}}),
                 .patient = false,
                 .divides = false});
  all.push_back(
      chain_of_head({.name = "one module for all tokens, drawn",
                     .strategy = heads("mtp", {{"widths", {1, 1}}, {"children", "without_replacement"}}),
                     .patient = false,
                     .divides = false}));
  all.push_back(
      {.name = "one module for each token, a drawn tree",
       .strategy = choose(
           "mtp", {{"head", some_head("mtp", 2)}, {"widths", {2, 1}}, {"children", "without_replacement"}}),
       .patient = false,
       .divides = false});
  all.push_back(
      chain_of_head({.name = "blocks of two, drawn",
                     .strategy = heads("falcon", {{"widths", {1, 1}}, {"children", "without_replacement"}}),
                     .patient = false,
                     .divides = false}));
  all.push_back({.name = "blocks of one, a drawn tree",
                 .strategy = choose("falcon", {{"head", some_head("falcon", 1, 1)},
                                               {"widths", {2, 1}},
                                               {"children", "without_replacement"}}),
                 .patient = false,
                 .divides = false});
  // Each guess has a law of its own, whatever was drawn before it: q is the product of these laws.
  all.push_back(chain_of_head(
      {.name = "masks, drawn",
       .strategy = heads("parallel_eagle", {{"widths", {1, 1}}, {"children", "without_replacement"}}),
       .patient = false,
       .divides = false}));
  all.push_back(
      {.name = "masks, a drawn tree",
       .strategy = heads("parallel_eagle", {{"widths", {2, 1}}, {"children", "without_replacement"}}),
       .patient = false,
       .divides = false});
  all.push_back(chain_of_head(
      {.name = "block, drawn",
       .strategy = heads("block_draft", {{"widths", {1, 1}}, {"children", "without_replacement"}}),
       .patient = false,
       .divides = false}));
  all.push_back({.name = "block, a drawn tree",
                 .strategy = heads("block_draft", {{"widths", {2, 1}}, {"children", "without_replacement"}}),
                 .patient = false,
                 .divides = false});
  all.push_back(chain_of_head({.name = "look-ahead embeddings",
                               .strategy = heads("pass", {{"widths", {1, 1}}}),
                               .patient = false,
                               .divides = false}));
  all.push_back({.name = "look-ahead embeddings, a tree",
                 .strategy = heads("pass", {{"widths", {2, 1}}}),
                 .patient = false,
                 .divides = false});
  return all;
}

}  // namespace speclab::markov
