#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/base/options.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// What a strategy is, for people: one row of the taxonomy that `speclab list strategies` prints. Static
/// strings.
struct StrategyInfo {
  std::string_view name;             ///< also the name of its file in strategies/
  std::string_view summary;          ///< one line
  std::string_view paper;            ///< who and where
  std::string_view draft_source;     ///< "small model", "copies from the context", ...
  std::string_view stop_rule;        ///< what ends a draft
  std::string_view verification;     ///< "chain", "tree", "none"
  std::string_view criterion;        ///< acceptance rules that it is made for
  std::string_view loss;             ///< "L1 / L2 as the rule"
  std::string_view trained;          ///< what must be trained
  bool needs_draft = false;          ///< refuses to run without a draft model
  std::string_view needs_file{};     ///< an option that must name a file; empty when there is none
  bool needs_reference = false;      ///< drafts from the autoregressive text, which is then decoded first
  std::string_view may_name_file{};  ///< an option that may name one; empty when there is none
};

/// A registered strategy: data and a factory. Options are kept without their type.
struct StrategyEntry {
  StrategyInfo info;
  std::shared_ptr<void> (*new_options)(const void* copy_of);  ///< nullptr: defaults
  void (*fields)(void* options, OptionVisitor& visit);
  std::unique_ptr<Strategy> (*make)(const void* options, const Resources& resources);
  bool (*carries_memory)(const void* options) = nullptr;  ///< nullptr: never
};

/// A strategy with options of its own; a value. The way from a config to a Strategy:
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
  OptionFields fields();  ///< of the options in here: valid while this lives
  /// Is the file that the strategy needs not named?
  bool lacks_file() const;
  /// Does the strategy, with these options, take something from one conversation into the next? Then a draft
  /// depends on the prompts before, and experiments decode the prompts of the case in the order of their
  /// file.
  bool carries_memory() const { return entry_->carries_memory && entry_->carries_memory(options_.get()); }
  /// Throws Error when options contradict each other, or when the draft model or the file that is needed is
  /// missing.
  std::unique_ptr<Strategy> make(const Resources& resources) const;

 private:
  const StrategyEntry* entry_;
  std::shared_ptr<void> options_;
};

/// All strategies that are linked in, by name.
std::span<const StrategyEntry> strategies();
/// Throws Error naming the nearest one when there is none of this name.
const StrategyEntry& find_strategy(std::string_view name);

void register_strategy(const StrategyEntry& entry);

/// One static object per strategy file registers it. Options: default-constructible and copyable, with
/// fields(), and `bool carries_memory() const` where some option makes the strategy keep something for the
/// next conversation; MyStrategy: a Strategy with a constructor (const Options&, const Resources&).
///
///     static const RegisterStrategy<Options, MyStrategy> registered{{.name = "my_strategy", .summary =
///     "..."}};
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
           return std::make_unique<MyStrategy>(*static_cast<const Options*>(options), resources);
         },
         [](const void* options) {
           if constexpr (requires(const Options& of) { of.carries_memory(); })
             return static_cast<const Options*>(options)->carries_memory();
           return false;
         }});
  }
};

/// For strategies without options.
struct NoOptions {
  void fields(OptionVisitor&) {}
};

}  // namespace speclab
