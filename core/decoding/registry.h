#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/options.h"
#include "core/decoding/budget/budget_options.h"
#include "core/decoding/budget/budgeted_strategy.h"
#include "core/decoding/strategy.h"

// The registry of strategies. The file of each strategy registers a description of it, its options and a
// factory.

namespace speclab {

/// How `speclab_bench` times a setting of a strategy (experiments/bench/copies.cpp).
enum class BenchmarkKind {
  replayed,        ///< calls draft() and observe() along a given text, without a target forward
  decoded,         ///< real decoding, for strategies that read the target's rows
  from_datastore,  ///< as replayed, with a datastore of a long text as the file that the strategy needs
};
struct StrategyBenchmark {
  std::string_view label;    ///< part of the benchmark's name that stands for this setting
  std::string_view options;  ///< options of the strategy, a JSON object
  BenchmarkKind kind;
};

/// The kind of drafts for which `speclab preflight` and `speclab optimize config` take a strategy when they
/// search settings (searched_strategy()). They find the strategy for trees by another property
/// (StrategyInfo::drafts_any_shape).
enum class SearchedAs {
  nothing,      ///< none of the following
  model_chain,  ///< chains of a draft model; their length is the option "gamma"
  copies,       ///< copies from the prompt and the output; their length is the option "length"
  ngram_chain,  ///< chains of an n-gram model; their length is the option "gamma"
  window,       ///< guesses from a window; a law that is fitted to a grid predicts "W", "N" and "G"
};

/// The law that predicts tau of settings of a strategy that were not measured. It is fitted to measured cases
/// (experiments/simulate/replay/laws/law_kind.h).
enum class StrategyLaw {
  none,
  window,      ///< the law of lookahead decoding, in the options "W", "N" and "G"
  block,       ///< the same law with one guess; the option "block" is its number of tokens
  candidates,  ///< a candidate is right with a probability that depends on its rank and its depth; the
               ///< options "tree" and "k" set the shape of the tree
};

/// Describes a strategy and what it needs. The engine reads these properties and knows no strategy by name.
/// (Only the theory of lookahead decoding, such as experiments/analysis/lookahead_fit.cpp, names its
/// strategy.) `speclab list strategies` and `speclab describe` print the texts. All texts are static strings.
struct StrategyInfo {
  std::string_view name;             ///< name of the strategy and of its file in strategies/
  std::string_view summary;          ///< one line
  std::string_view paper;            ///< authors, year, title
  std::string_view draft_source;     ///< "small model", "copies from the context", ...
  std::string_view stop_rule;        ///< what ends a draft
  std::string_view verification;     ///< "chain", "tree", "none"
  std::string_view criterion;        ///< the acceptance rules that the strategy is meant for
  std::string_view loss;             ///< loss class, which follows from the rule
  std::string_view trained;          ///< what must be trained before
  std::string_view short_name{};     ///< in tables on a terminal; empty: the name with spaces
  bool needs_draft = false;          ///< needs a draft model
  int most_drafts = 1;               ///< the largest number of draft models that it can use
  std::string_view needs_file{};     ///< name of an option that must name a file; empty when there is none
  bool needs_reference = false;      ///< drafts from the autoregressive text; experiments decode that first
  std::string_view may_name_file{};  ///< name of an option that may name a file; empty when there is none
  std::string_view former_name{};    ///< name in older records; empty when the name never changed
  /// Its option "widths" or "tree" sets the tree's shape, and its option "root_confidence" records the draft
  /// model's confidence (`speclab optimize tree`).
  bool drafts_any_shape = false;
  /// With a constant schedule and a fixed budget, every draft is a chain of "gamma" tokens, drawn from the
  /// draft model alone. Exact expectations on toys are for such drafts (core/theory/toys).
  bool drafts_model_chains = false;
  /// Drafts on a thread of its own while the target verifies. The decode loop then divides the threads of the
  /// backend between the two models (core/decoding/ahead/divided_models.h).
  bool drafts_ahead = false;
  bool skips_layers = false;  ///< drafts with the target, but skips the layers that the file of the option
                              ///< "skip_file" names (`speclab optimize layers` writes such files)
  /// Drafts with forwards of the target itself. A table of costs then has the time of a layer and of a cached
  /// position of the target (StepCosts::layer_ns, position_ns).
  bool drafts_with_target = false;
  /// Name of an option that holds a matrix K (theory::MatrixCascade in core/theory/cascade.h), by which
  /// several draft models review each other's chains; empty when there is none. The option "max_gram" says
  /// whether copies are the last draft. The sources of a draft are "draft 1", "draft 2", ... and "max_gram".
  std::string_view length_matrix{};
  bool is_baseline = false;  ///< exactly one strategy has this: it drafts nothing and is the reference
  bool divides_over_devices = false;  ///< LoopOptions::devices may divide its steps
  bool guesses_whole_blocks = false;  ///< a draft guesses all tokens of a block at once (Jacobi
                                      ///< decoding); the metric misplaced_ngrams is computed then
  bool shows_recording_cost = false;  ///< `speclab bench` decodes with it to measure
                                      ///< what the record of a step (times, counts, tokens) costs
  /// Another program proposes the tokens and must be running (core/decoding/drafting/outside/message.h). The
  /// times of its cases contain that program, and the record says so.
  bool needs_program = false;
  /// What it drafts depends on how the steps before went: on the target's rows of these steps, on the tokens
  /// that they accepted, or on their number. So it drafts something else if steps begin at other positions,
  /// and a trace (experiments/simulate/trace.h) cannot tell what it would draft.
  bool follows_steps = false;
  /// Each value except `nothing` belongs to exactly one strategy.
  SearchedAs searched_as = SearchedAs::nothing;
  StrategyLaw law = StrategyLaw::none;
  std::span<const StrategyBenchmark> benchmarks{};  ///< settings that `speclab_bench` times; a static array
};

/// A registered strategy: its description and its factory. Options are passed as void*, because each
/// strategy has its own type of options.
struct StrategyEntry {
  StrategyInfo info;
  /// Makes a copy of these options, or the default options if `copy_of` is null.
  std::shared_ptr<void> (*new_options)(const void* copy_of);
  void (*fields)(void* options, OptionVisitor& visit);
  std::unique_ptr<Strategy> (*make)(const void* options, const Resources& resources);
  bool (*carries_memory)(const void* options) = nullptr;  ///< null: never does
  bool (*needs_costs)(const void* options) = nullptr;     ///< null: never does
};

/// A strategy with its options, as a value. This is how a config becomes a Strategy:
///
///     StrategyChoice choice(find_strategy("prompt_lookup"));
///     parse_options(choice.fields(), json, "a.json: /cases/0");
///     auto strategy = choice.make(resources);
class StrategyChoice {
 public:
  explicit StrategyChoice(const StrategyEntry& entry);  ///< defaults
  StrategyChoice(const StrategyChoice& other);
  StrategyChoice& operator=(const StrategyChoice& other);

  const StrategyInfo& info() const { return entry_->info; }
  OptionFields fields();  ///< the fields of these options; valid as long as this object
  /// Whether the strategy needs a file that the options do not name.
  bool lacks_file() const;
  /// Whether the strategy, with these options, keeps something from one conversation for the
  /// next. Drafts then depend on earlier prompts, and experiments decode the prompts of the
  /// case in the order of their file.
  bool carries_memory() const { return entry_->carries_memory && entry_->carries_memory(options_.get()); }
  /// Whether the strategy, with these options, needs Resources::costs: the option "budget" is "auto", or the
  /// schedule needs them.
  bool needs_costs() const { return entry_->needs_costs && entry_->needs_costs(options_.get()); }
  /// Makes the strategy. Throws Error when options contradict each other, when a required draft model, file
  /// or table of costs is missing, and when there are more than StrategyInfo::most_drafts draft models.
  std::unique_ptr<Strategy> make(const Resources& resources) const;

 private:
  const StrategyEntry* entry_;
  std::shared_ptr<void> options_;
};

/// All linked strategies, by name.
std::span<const StrategyEntry> strategies();
/// Throws Error if no strategy has this name. The error gives the current name if `name` is a former one.
/// Otherwise it suggests a similar name, or lists all names if none is similar.
const StrategyEntry& find_strategy(std::string_view name);
/// The strategy with the name that a record gives, which may be a former name. Returns nullptr for a name
/// that this version does not know: another version of the program may have written the record.
const StrategyInfo* recorded_strategy(std::string_view name);
/// The strategy that all others are compared with (StrategyInfo::is_baseline).
const StrategyEntry& baseline_strategy();

/// The strategy that drafts the trees of `speclab optimize tree` (StrategyInfo::drafts_any_shape).
const StrategyEntry& tree_strategy();

/// The strategy that skips the layers that `speclab optimize layers` finds (StrategyInfo::skips_layers).
const StrategyEntry& layer_strategy();

/// The strategy that is searched as `what`, which is not `nothing` (StrategyInfo::searched_as).
const StrategyEntry& searched_strategy(SearchedAs what);

void register_strategy(const StrategyEntry& entry);

/// Registers a strategy: define one static object of this type in the strategy's file. Options is
/// default-constructible and copyable and has fields(). It also has `bool carries_memory() const` if some
/// option makes the strategy keep something for the next conversation. With a member `BudgetOptions budget`,
/// the strategy can choose how much it drafts. If that member is a `CutBudgetOptions`, the budget "auto" cuts
/// the drafts (core/decoding/budget/budgeted_strategy.h). With a member `chain` that has a member
/// `ScheduleOptions schedule`, the schedule may need costs. MyStrategy is a Strategy with a constructor
/// (const Options&, const Resources&).
///
///     static const RegisterStrategy<Options, MyStrategy> registered{
///         {.name = "my_strategy", .summary = "..."}};
template <class Options, class MyStrategy>
class RegisterStrategy {
 public:
  explicit RegisterStrategy(const StrategyInfo& info) {
    register_strategy(
        {info,
         [](const void* copy_of) -> std::shared_ptr<void> {
           if (copy_of) return std::make_shared<Options>(*static_cast<const Options*>(copy_of));
           return std::make_shared<Options>();
         },
         [](void* options, OptionVisitor& visit) { static_cast<Options*>(options)->fields(visit); },
         [](const void* options, const Resources& resources) -> std::unique_ptr<Strategy> {
           const Options& of = *static_cast<const Options*>(options);
           auto made = std::make_unique<MyStrategy>(of, resources);
           if constexpr (requires { requires std::is_same_v<decltype(Options::budget), CutBudgetOptions>; }) {
             if (budget_of(of))
               return std::make_unique<BudgetedStrategy>(std::move(made), resources.costs, resources.batch);
           }
           return made;
         },
         [](const void* options) {
           if constexpr (requires(const Options& of) { of.carries_memory(); })
             return static_cast<const Options*>(options)->carries_memory();
           return false;
         },
         [](const void* options) {
           const Options& of = *static_cast<const Options*>(options);
           if constexpr (requires { of.chain.schedule.info().needs_costs; })
             return budget_of(of) || of.chain.schedule.info().needs_costs;
           return budget_of(of);
         }});
  }

 private:
  static bool budget_of(const Options& options) {
    if constexpr (requires { options.budget.automatic(); }) return options.budget.automatic();
    return false;
  }
};

/// For strategies without options.
struct NoOptions {
  void fields(OptionVisitor&) {}
};

}  // namespace speclab
