#pragma once

/// The names of the strategies whose settings `speclab preflight` and `speclab optimize config` search. This
/// is the only place in which these two commands name a strategy.
namespace speclab::searched {

inline constexpr const char* kChains = "speculative_sampling";  ///< chains of a draft model
inline constexpr const char* kCopies = "prompt_lookup";         ///< copies from the prompt and the output
inline constexpr const char* kNgrams = "ngram_model";           ///< chains of an n-gram model
inline constexpr const char* kLookahead = "lookahead";          ///< W, N and G, by its fitted law

}  // namespace speclab::searched
