#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/token.h"
#include "core/measure/work.h"

namespace speclab {

/// The phases of a decoding step. Every instant of a step belongs to exactly one phase.
enum class Phase { draft, target, accept, other };
inline constexpr int kPhases = 4;

/// Nanoseconds per phase. Their sum is the wall time of the measured span.
struct PhaseTimes {
  std::array<std::int64_t, kPhases> ns{};
  std::int64_t& operator[](Phase phase) { return ns[static_cast<std::size_t>(phase)]; }
  std::int64_t operator[](Phase phase) const { return ns[static_cast<std::size_t>(phase)]; }
  std::int64_t total() const { return ns[0] + ns[1] + ns[2] + ns[3]; }
  PhaseTimes& operator+=(const PhaseTimes& times);
};

/// Splits wall time into phases without gaps. A change of phase reads the clock once.
class PhaseClock {
 public:
  /// Forgets everything and starts counting for `phase`.
  void start(Phase phase);
  /// Ends the current phase and starts `phase`.
  void enter(Phase phase);
  /// Returns the times since start() or the last lap(). The current phase goes on.
  PhaseTimes lap();

 private:
  PhaseTimes times_;
  Phase phase_ = Phase::other;
  std::int64_t since_ns_ = 0;
};

/// Why a step ended. `rejection`: no child of the last accepted node was accepted. `bonus`: the accepted path
/// ended at a leaf; for a chain, the whole draft was accepted. `schedule`: as `bonus`, but a schedule had
/// ended the draft early. `eos`: the end token cut the step. `length`: a limit or a stop string cut the step.
/// `none`: nothing was drafted (an autoregressive step).
enum class EndedBy { rejection, bonus, eos, length, schedule, none };
const char* to_string(EndedBy ended_by);

/// One drafted token (any candidate of the tree) and what the acceptance rule found out about it.
struct DraftedToken {
  Token id = -1;
  int parent = 0;  ///< parent node; 0: the pending (last emitted) token. StepRecord::drafted[i] is node i + 1
  bool tested = false;  ///< the rule reached the token's parent and tested this token
  bool accepted = false;
  float confidence = -1;  ///< the probability that the drafter gave the token; -1: unknown
  float entropy = -1;     ///< entropy in nats of the drafter's row, if the drafter computed it; -1: unknown
  float predicted = -1;   ///< probability of acceptance that a trained controller predicted; -1: none
  /// Target probability. -1 for a token that was not tested, unless LoopOptions::row_details asks for it.
  double p = -1;
  /// Probability of the token in the distribution that it was drawn from; 1 for a one-hot q. -1 where p is
  /// -1.
  double q = -1;
  double expected = -1;  ///< the rule's expected acceptance (sum min(p, q), p(x), ...); -1: unknown
  int rank = -1;         ///< rank of the token in the target's row, 0 = best; -1: unknown
  /// Total variation distance between p and the distribution of the token that the rule emits after the
  /// parent. Only for lossy rules, and only at the first tested child of a parent; otherwise -1.
  double distance = -1;
  /// KL divergence of the same distribution from p, in nats. If the distribution is called law, this is the
  /// sum of law(x) log(law(x) / p(x)). Infinite if law(x) > 0 for a token with p(x) = 0. -1 where `distance`
  /// is -1.
  double kl = -1;
};

/// A probe or a relay (NodeKind): a node that was fed to the target but cannot be accepted.
struct ProbedToken {
  Token id = -1;
  int parent = 0;   ///< node index
  Token best = -1;  ///< most probable token of the target's row; -1 for a relay, whose row is not computed
};

/// Says which source drafted which nodes of a tree that several sources built. The nodes from `first` to
/// the node before the `first` of the next contribution come from `source`.
struct Contribution {
  int first = 0;
  std::string source;
};

/// While a draft was made, the draft model `reviewer` reviewed chains from `source`: it tested this many
/// places and kept the token at this many. A place without a token counts as tested, but not as kept.
struct DraftReview {
  std::string reviewer, source;
  int tested = 0, kept = 0;
};

/// The work of one device in a step that is divided over several devices (LoopOptions::devices).
struct DevicePart {
  int rows = 0;         ///< tokens that were fed to this device
  std::int64_t ns = 0;  ///< time of its forward
};

/// The work of a draft model that drafted for the next step while the target verified this one (draft ahead).
struct AheadWork {
  int forwards = 0;  ///< of the draft model, for the draft ahead
  int drafted = 0;   ///< tokens of the draft ahead
  bool right =
      false;  ///< the text went on as assumed, so the draft is used in the next step; false: it is dropped
  std::int64_t ns = 0;             ///< time of the draft ahead, on a thread of its own
  std::int64_t overlapped_ns = 0;  ///< the part of `ns` before the end of this step's verification
  std::int64_t waited_ns = 0;  ///< how long the step then waited for this draft; a part of the phase `draft`
};

/// The record of one decoding step: one target forward and everything around it.
struct StepRecord {
  std::string source;  ///< who drafted: "draft", "lookup", ...; empty when nothing was drafted
  int accepted = 0;    ///< drafted tokens that were emitted (after cuts)
  int emitted = 0;     ///< tokens that the step added to the text (after cuts)
  EndedBy ended_by = EndedBy::none;
  /// Tokens fed to the target. A token that is fed in several sequences (VerifyWith) or on several devices
  /// counts several times.
  int rows = 0;
  int draft_calls = 0;          ///< Work::calls of the draft in this step
  std::int64_t pool_size = -1;  ///< n-grams that the strategy could copy when it drafted; -1: it has no pool
  /// The largest probability of the draft model's distribution after the pending token; -1: not computed.
  float root_confidence = -1;
  int tree_number = -1;  ///< which of several trees was drafted, from 0; -1: the strategy has no such choice
  PhaseTimes times;
  std::optional<AheadWork> ahead;     ///< absent when nothing was drafted ahead in this step
  std::vector<DraftedToken> drafted;  ///< in node order
  /// The largest probabilities of the row that each drafted token was drawn from, descending, [drafted,
  /// top_width]; empty unless the drafter recorded them.
  std::vector<float> top;
  int top_width = 0;
  std::vector<Contribution> contributions;  ///< empty when `source` drafted all nodes
  std::vector<DraftReview> reviews;         ///< empty unless draft models reviewed chains of other sources
  std::vector<DevicePart> parts;            ///< by device; empty when there is only one
  std::vector<ProbedToken>
      probes;  ///< the nodes after `drafted`, in node order; kept for the first steps of a text only
};

/// Why a text ended: the end token, max_tokens, a stop string, a full context, or a request of the caller.
enum class Finish { eos, length, stop, context, cancelled };
const char* to_string(Finish finish);

/// The record of one generated text. The decode loop fills it. tokens[0] comes from prefill; metrics count it
/// in neither tokens nor steps.
struct GenerationRecord {
  int context_length = 0;      ///< prompt tokens
  std::vector<Token> context;  ///< the prompt itself, when an experiment keeps it; otherwise empty
  std::vector<Token> tokens;   ///< emitted, in order
  /// hash_row() of the target's logits row that each token came from, [tokens]. Equal rows have equal hashes.
  /// Empty without LoopOptions::hash_rows.
  std::vector<std::uint32_t> row_hashes;
  /// Entropy in nats of the target's row that each token came from, [tokens]: at temperature 1, without top-k
  /// and top-p, after the logits processors. Empty without LoopOptions::row_details.
  std::vector<float> row_entropies;
  Finish finish = Finish::length;
  /// Time of the target's prefill until the first token is known, without the strategy's observe_prompt().
  /// When several loops share one prefill, each of them records the time of that prefill.
  std::int64_t prefill_ns = 0;
  std::int64_t draft_prefill_ns = 0;  ///< time of the strategy's observe_prompt() and begin()
  /// The part of draft_prefill_ns that observe_prompt() took. observe_prompt() runs before the first token is
  /// known, begin() after.
  std::int64_t observe_prompt_ns = 0;
  std::int64_t decode_ns = 0;  ///< wall time of all steps
  std::int64_t cpu_ns = 0;     ///< CPU time of all steps, all threads
  Work target_prefill, target, draft_prefill, draft;
  std::vector<Work> drafts;  ///< `draft` by draft model, in the config's order; empty with fewer than two
  int planned_steps = 0;     ///< whole steps that a device ran without the host (core/backend/plan.h)
  int verified_steps = 0;    ///< steps that the host drafted and a device verified
  /// How the planned steps were queued (option device_graph): "off", "round", "loop"; "" without such steps.
  std::string device_graph;
  std::string device_graph_problem;  ///< why the steps were not queued as the option says; "" if they were
  std::int64_t round_trips = 0;      ///< how often decoding waited for a device with its own memory
  /// Total device time of a second, timed run of the planned steps. The times of the phases draft, target and
  /// accept are taken from that run. 0 if there was none.
  std::int64_t stamped_ns = 0;
  std::vector<StepRecord> steps;
};

/// Hashes the bits of a logits row. Fast (about 10 GB/s), not cryptographic.
std::uint32_t hash_row(const float* row, std::size_t size);

}  // namespace speclab
