#pragma once

#include "core/theory/step_costs.h"

/// Closed forms for decoding in which drafting and verification take place at the same time, on devices of
/// their own. All assume i.i.d. acceptance: a judged token is accepted with probability alpha, independently.
/// A judged token that is not accepted is replaced by a correction; then the drafted tokens behind it are
/// dropped, forwards that are under way end at once, and drafting starts again. Exchanging tokens between the
/// devices takes no time.
///
/// A target forward that feeds the drafted token x_i also judges x_{i+1}, if that token has been drafted when
/// the forward ends. So a forward that is launched as soon as the last one ends judges exactly as many tokens
/// as it feeds, and no token is a bonus.
///
/// Each function ..._token_time() returns the mean time per emitted token, in the unit of its times, for a
/// long text. `verify` is the time of a target forward by number of rows, and `draft` the time of a draft
/// forward. Divide verify.at(1) by the result for the speedup over autoregressive decoding. These functions
/// throw Error for alpha outside [0, 1], a draft time that is not positive, and a gamma or lookahead below 1.
/// event_simulation.h plays the same timelines event by event, for any acceptance.
namespace speclab::simulate {

/// One device, or two that wait for one another: gamma tokens are drafted, then verified. This is Theorem 3.8
/// of Leviathan et al. 2023 with the time of gamma + 1 rows: (gamma draft + verify(gamma + 1)) / E[tau].
double serial_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify);

/// PEARL (Liu et al. 2024, "Parallel Speculative Decoding with Adaptive Draft Length"): in each round the
/// draft model drafts gamma tokens, the target runs one forward, and both wait for the slower one.
///   pre-verify:  after a correction, the target judges the first token of the draft that is being written.
///                Round time P = max(gamma draft, verify(1)); one token is emitted.
///   post-verify: after an accepted round, the target feeds the gamma tokens of the last round and judges the
///                next gamma tokens. Round time Q = max(gamma draft, verify(gamma)).
/// Pre-verify is followed by post-verify with probability alpha, and post-verify by post-verify with
/// probability alpha^gamma. The stationary law of this chain gives
///   time per token = ((1 - alpha^gamma) P + alpha Q) (1 - alpha) / (1 - alpha^gamma).
double pearl_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify);

/// PEARL with post-verify alone, as the strategy `overlapped_speculation` runs it: after a correction gamma
/// tokens are drafted and nothing is verified. Then, in each round, the target feeds the gamma tokens of the
/// last round and the token before them, and judges them and the next drafted token. That token takes the
/// place of the bonus. Meanwhile the draft model runs gamma + 1 forwards, and both wait for the slower one.
/// With g = gamma + 1, the next round follows at once with probability alpha^g. So
///   time per token = ((1 - alpha^g) gamma draft + max(g draft, verify(g))) (1 - alpha) / (1 - alpha^g).
double post_verify_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify);

/// AMUSD (McDanel 2024, "Asynchronous Multi-Device Speculative Decoding"): the draft model drafts without
/// pause, and each target forward feeds what has been drafted since the last one was launched. Between two
/// corrections everything follows from the times alone: forward j ends at time s_j, when n_j = floor(s_j /
/// draft) tokens have been drafted; it judges n_{j-1} - n_{j-2} tokens, the first forward one token. So
///   time per token = sum_j P(forward j is launched) verify(tokens of j) / E[tokens between two corrections].
/// The sums end where a forward is launched with a probability below 1e-12, after 100,000 forwards, or when
/// more than kMaxGamma tokens are drafted. Throws Error if a draft forward takes longer than verify(1),
/// because a target forward could then end before the token that it judges has been drafted.
double amusd_token_time(double alpha, double draft, const theory::RowTimes& verify);

/// DSI (Timor et al. 2024, "Distributed Speculative Inference"): the draft model drafts without pause. A
/// verification is launched at once after a correction, and after every `lookahead` further drafted tokens,
/// on the next of `servers` copies of the target (the speculation-parallel degree SP of the paper). No
/// verification waits for a server if servers >= verify / (lookahead draft). A token is known once its
/// verification has ended, so
///   time per token = (1 - alpha) verify + alpha (lookahead draft / E1 + w alpha^a / E2)
/// with w = max(0, verify - servers lookahead draft) (the wait for a server), a = (servers - 1) lookahead,
/// E1 = sum_{i < lookahead} alpha^i, and E2 = sum_{i < servers lookahead} alpha^i. With lookahead 1 and
/// enough servers, an accepted token costs `draft` and a correction costs `verify`. `verify` is the time of
/// every verification, whatever its rows. Throws Error if lookahead draft > verify: the target would then
/// be idle between two verifications.
double dsi_token_time(double alpha, int lookahead, int servers, double draft, double verify);
/// The fewest servers with which no verification of DSI waits.
int dsi_servers(int lookahead, double draft, double verify);

/// A setting and its time per token.
struct OverlapChoice {
  int tokens = 0;  ///< gamma or lookahead; 0: no setting is faster than autoregressive decoding
  int servers = 1;
  double token_time = 0;
};
/// The fastest gamma from 1 to `most` and its time per token, for serial drafting, PEARL and post-verify
/// alone. If no gamma is faster than autoregressive decoding: tokens 0 and the time verify.at(1).
OverlapChoice best_serial(double alpha, double draft, const theory::RowTimes& verify, int most);
OverlapChoice best_pearl(double alpha, double draft, const theory::RowTimes& verify, int most);
OverlapChoice best_post_verify(double alpha, double draft, const theory::RowTimes& verify, int most);
/// The same for the lookahead of DSI, with verifications that take verify(lookahead). A lookahead whose draft
/// takes longer is left out. `servers`: copies of the target; 0: dsi_servers().
OverlapChoice best_dsi(double alpha, double draft, const theory::RowTimes& verify, int servers, int most);

}  // namespace speclab::simulate
