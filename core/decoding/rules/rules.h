#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/decoding/rules/accept.h"

/// The families of acceptance rules, joined by acceptance_rules(). Each family has a file rules_<family>.cpp;
/// longest_path() is in rules_criterion.cpp.
namespace speclab::rules {

inline constexpr int kNoLimit = std::numeric_limits<int>::max();

std::span<const AcceptanceRule>
ratio();  ///< accept by the ratio p/q: rejection sampling and its lenient forms
std::span<const AcceptanceRule> match();  ///< accept when the target's own token is the drafted one
std::span<const AcceptanceRule>
criterion();  ///< accept when the token meets a condition on the target's row: lossy
std::span<const AcceptanceRule> longest_path();  ///< criterion rules that take the longest path
std::span<const AcceptanceRule> classical();     ///< textbook rejection sampling, for comparison
std::span<const AcceptanceRule> paths();         ///< judge whole paths, from the leaves to the root
std::span<const AcceptanceRule> k_seq();         ///< the same test for all children drawn from one row
std::span<const AcceptanceRule> multi_path();    ///< block verification of one of several paths
std::span<const AcceptanceRule> any_order();     ///< rejection with the children in a random order

// Parameters of the rules; each is declared once. A rule lists pointers to the parameters that it reads.
inline constexpr RuleOption kLenience{.name = "lenience",
                                      .help = "l: accept with min(1, p / (l q)); 1 = lossless",
                                      .number = &RuleOptions::lenience};
inline constexpr RuleOption kUpperEnd{
    .name = "b",
    .help = "upper end of the uniform number that p/q must exceed; 1 = lossless",
    .number = &RuleOptions::b};
inline constexpr RuleOption kEpsilon{
    .name = "epsilon",
    .help = "epsilon of typical acceptance and of DistillSpec's lenience functions",
    .number = &RuleOptions::epsilon};
inline constexpr RuleOption kBeta{.name = "beta",
                                  .help = "top-beta: accept among the beta best tokens",
                                  .count = &RuleOptions::beta,
                                  .counts = {1, kNoLimit}};
inline constexpr RuleOption kGap{.name = "gap",
                                 .help = "accept within this many nats of the best token",
                                 .number = &RuleOptions::gap,
                                 .range = {0, std::numeric_limits<double>::max()}};
inline constexpr RuleOption kDistance{.name = "token_distance",
                                      .help =
                                          "the rule distance: accept up to this many token ids from the best "
                                          "token; only for vocabularies whose ids "
                                          "are ordered values, such as the intensities of pixels",
                                      .count = &RuleOptions::distance,
                                      .counts = {0, kNoLimit}};
inline constexpr RuleOption kMinBlock{
    .name = "min_block",
    .help =
        "minimum_block: a step keeps at least this many tokens, with the pending one; fewer if the draft is "
        "shorter or a token has probability 0; 1 = no minimum",
    .count = &RuleOptions::min_block,
    .counts = {1, kNoLimit}};
inline constexpr RuleOption kDelta{.name = "delta",
                                   .help = "typical acceptance: factor of exp(-entropy)",
                                   .number = &RuleOptions::delta,
                                   .range = {0, 1}};
inline constexpr RuleOption kTheta{.name = "theta",
                                   .help = "hard threshold: accept when p(x) is at least this",
                                   .number = &RuleOptions::theta,
                                   .range = {0, 1}};
inline constexpr RuleOption kThresholdTopK{
    .name = "threshold_top_k",
    .help = "hard threshold: x must also be among the k best tokens; 0 = off",
    .count = &RuleOptions::top_k,
    .counts = {0, kNoLimit}};
inline constexpr RuleOption kStreams{
    .name = "streams",
    .help =
        "streams of noise. Child k of a node is drawn with stream k mod streams, and the target's token "
        "with the largest noise of all streams; 1: all children share one",
    .count = &RuleOptions::streams,
    .counts = {1, Coins::kMostStreams},
    .changes_reference = true};

// Shared by the families.

/// A sample of p with the coin that autoregressive decoding uses at this position.
Token sample_target(const TargetRow& row, const Coins& coins, std::int64_t position, const RuleOptions&);
Token greedy_target(const TargetRow& row, const Coins& coins, std::int64_t position, const RuleOptions&);
/// L1, or L2 at temperature 0.
LossClass lossless(const RuleOptions&, const SamplingParams& sampling);
/// Sets `law` to p: the output law of every lossless rule.
void law_of_target(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&,
                   std::vector<double>& law);
/// Sets `law` to the law that a child was drafted from: q, or all mass on the token `one_hot` if q is null.
void law_of_draft(const TargetRow& row, const Distribution* q, Token one_hot, std::vector<double>& law);

}  // namespace speclab::rules
