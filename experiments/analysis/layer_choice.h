#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/theory/layer_search.h"
#include "experiments/config/prompts.h"
#include "experiments/run/model_set.h"

/// Chooses the layers that a target leaves out when it drafts for itself: `speclab optimize layers`.
namespace speclab {

struct LayerWish {
  int tokens = 64;         ///< tokens of each answer
  int gamma = 6;           ///< longest chain whose acceptance is measured
  double temperature = 0;  ///< of target and draft
  theory::SkipSearchOptions search;
  /// Times of another machine; absent: measured here.
  std::optional<theory::RowTimes> target = std::nullopt;
  std::optional<double> per_layer = std::nullopt;  ///< SkipCosts::per_layer
};

/// A prompt and the target's own answer to it.
struct ForcedText {
  std::vector<Token> prompt, answer;
};

/// Measures on fixed texts (teacher forcing) how often a target accepts the tokens of a draft that is made of
/// some of its layers. At every gamma-th token of an answer, one forward runs the draft over the next gamma
/// tokens of the answer, on the target's own K/V of the text before. This is what the strategy runs when all
/// drafted tokens agree with the answer. It is an approximation, because a real step may begin at any token.
class ForcedAcceptance {
 public:
  /// Throws Error for a text that does not fit the target's context.
  ForcedAcceptance(std::shared_ptr<const Model> target, std::vector<ForcedText> texts, int gamma,
                   double temperature);
  ~ForcedAcceptance();
  /// P(token at depth d is accepted | the tokens before it were), for d = 1 to gamma. At temperature 0 a
  /// token is accepted if it equals the answer's token. At other temperatures, sum min(p, q) is the
  /// probability that it is accepted, and a chain's weight at depth d is the product of the sums before d.
  std::vector<double> of(std::span<const int> skip);

 private:
  struct Text;
  std::shared_ptr<const Model> target_;
  int gamma_;
  SamplingParams sampling_;
  std::vector<std::unique_ptr<Text>> texts_;
};

/// Searches the layers to skip and returns the contents of a skip file (core/model/net/skipped_layers.h) with
///   "predicted": {"skip", "gamma", "tau", "c", "speedup", "acceptance"}, "by_size": [objects like
///   "predicted"], "t": {"n": ratio}, "per_layer", "target", "numerics", "layers": [layer], "temperature",
///   "prompts": [id], "tokens", "gamma": LayerWish::gamma, "seed", "evaluations", "complete".
/// Writes each evaluated set to the file `log`, whose first line holds the settings and the costs. With
/// `resume`, takes the costs and the sets from that file. Throws Error when the file belongs to another
/// search. `interrupted` ends the search early when it returns true; "complete" is then false. `progress`
/// gets the number of evaluated sets and a text about the best one.
nlohmann::json optimized_layers(const ModelSet& models, const std::vector<PromptSpec>& prompts,
                                const LayerWish& wish, const std::filesystem::path& log, bool resume,
                                const std::function<bool()>& interrupted,
                                const std::function<void(int done, const std::string& best)>& progress);

/// A result of optimized_layers() as text.
std::string to_layers_text(const nlohmann::json& chosen);

}  // namespace speclab
