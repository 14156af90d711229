// The laws of lookahead decoding and of Jacobi decoding. A block of Jacobi decoding is one guess of all its
// tokens except the pending one. So its law is the law of lookahead decoding with a single guess.
#include <array>
#include <utility>
#include <vector>

#include "core/theory/lookahead.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay/laws/law_kind.h"

namespace speclab {
namespace {

using nlohmann::json;
using theory::LookaheadCell;
using theory::LookaheadShape;

constexpr std::array<std::string_view, 3> kWindow = {"W", "N", "G"};
constexpr std::array<std::string_view, 1> kBlock = {"block"};

LookaheadShape shape_of_block(const json& options) { return {1, options.at("block"), 1}; }

/// Fits the law with shapes that `shape_of` reads from the options of a case.
TauLaw fit_shapes(std::span<const CaseData* const> cells, const PromptChoice& prompts,
                  LookaheadShape (*shape_of)(const json&)) {
  std::vector<LookaheadCell> grid;
  bool square = true;
  for (const CaseData* data : cells) {
    LookaheadCell& cell = grid.emplace_back(LookaheadCell{shape_of(data->options()), {}, {}});
    square = square && cell.shape.W == cell.shape.G;
    cell.tokens.resize(data->prompts.size());
    cell.steps.resize(data->prompts.size());
    for_each_line(*data, 0, [&](std::size_t prompt, const LineRecord& line) {
      if (!prompts(prompt)) return;
      cell.tokens[prompt] += emitted_tokens(line);
      cell.steps[prompt] += step_count(line);
    });
  }
  const theory::LookaheadLaw law = theory::fit_lookahead(grid);
  TauLaw out;
  out.parameters = {{"alpha", law.alpha}, {"f", law.f}};
  if (!square) out.parameters["share"] = law.share;
  out.tau = [law, shape_of](const json& options) { return law.compression(shape_of(options)); };
  return out;
}

bool has_window(const json& options) {
  const LookaheadShape shape = lookahead_shape(options);
  return shape.W >= 1 && shape.N >= 2 && shape.G >= 1 && options.value("keep_pool", false) == false;
}

double window_rows(const json& options) { return theory::lookahead_rows(lookahead_shape(options)); }

double guessed_tokens(const json& options) {
  const LookaheadShape shape = lookahead_shape(options);
  return static_cast<double>(shape.G) * (shape.N - 1);
}

TauLaw fit_window(std::span<const CaseData* const> cells, const PromptChoice& prompts) {
  return fit_shapes(cells, prompts, lookahead_shape);
}

bool has_block(const json& options) {
  return options.value("scheme", "") != "parallel" && options.value("parallel_tokens", 0) == 0 &&
         options.value("block", 0) >= 2;
}

double block_rows(const json& options) { return options.at("block").get<double>(); }

double block_tokens(const json& options) { return options.at("block").get<double>() - 1; }

TauLaw fit_block(std::span<const CaseData* const> cells, const PromptChoice& prompts) {
  return fit_shapes(cells, prompts, shape_of_block);
}

}  // namespace

const LawKind kLookaheadKind = {
    .id = StrategyLaw::window,
    .law =
        "tau = (f - 1 + E) / f with E = N - sum_{i<N} (1 - alpha^i)^b (Fu et al. 2024, Eq. 5 and 7); b = W = "
        "G, or W^share G^(1 - share) as our extension",
    .assumptions =
        "Each token of a guess is right independently with probability alpha, and one step in f has a good "
        "guess. Steps feed the same share of the rows that they may feed as in the fitted cases.",
    .setting = kWindow,
    .least_cells = 2,
    .covers = has_window,
    .rows = window_rows,
    .drafted = guessed_tokens,
    .fit = fit_window};

const LawKind kJacobiKind = {
    .id = StrategyLaw::block,
    .law =
        "tau = (f - 1 + E) / f with E = (1 - alpha^n) / (1 - alpha) for a block of n tokens: the law of "
        "lookahead decoding (Fu et al. 2024, Eq. 5 and 7) with one guess",
    .assumptions =
        "Tokens of a block are right independently with probability alpha, and one step in f has a good "
        "guess. Steps feed the same share of a block as in the fitted cases.",
    .setting = kBlock,
    .least_cells = 2,
    .covers = has_block,
    .rows = block_rows,
    .drafted = block_tokens,
    .fit = fit_block};

}  // namespace speclab
