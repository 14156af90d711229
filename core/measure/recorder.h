#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/token.h"
#include "core/measure/work.h"

namespace speclab {

/// Where the time of a decoding step goes. Every instant of a step belongs to exactly one phase.
enum class Phase { draft, target, accept, other };
inline constexpr int kPhases = 4;

/// Nanoseconds per phase; their sum is the wall time of the span.
struct PhaseTimes {
  std::array<std::int64_t, kPhases> ns{};
  std::int64_t& operator[](Phase phase) { return ns[static_cast<std::size_t>(phase)]; }
  std::int64_t operator[](Phase phase) const { return ns[static_cast<std::size_t>(phase)]; }
  std::int64_t total() const { return ns[0] + ns[1] + ns[2] + ns[3]; }
  PhaseTimes& operator+=(const PhaseTimes& times);
};

/// Splits wall time into phases without gaps. Two clock readings per change of phase.
class PhaseClock {
 public:
  /// Forgets everything and starts counting for `phase`.
  void start(Phase phase);
  /// What passed since the last call belongs to the phase before; from now on time belongs to `phase`.
  void enter(Phase phase);
  /// The times since start() or the last lap(), up to now. The current phase goes on.
  PhaseTimes lap();

 private:
  PhaseTimes times_;
  Phase phase_ = Phase::other;
  std::int64_t since_ns_ = 0;
};

/// Why a step emitted no more: a drafted token was rejected; all of the draft was accepted (bonus); the end
/// token, or a limit (tokens, context, stop string), cut it; `schedule` is a bonus after a draft that its
/// schedule had ended early; `none`: nothing was drafted (an autoregressive step).
enum class EndedBy { rejection, bonus, eos, length, schedule, none };
const char* to_string(EndedBy ended_by);

/// One drafted token (a node of the tree but the root) and what the verifier saw there.
struct DraftedToken {
  Token id = -1;
  int parent = 0;       ///< node index; 0 = the pending token; this token is node 1 + its index
  bool tested = false;  ///< the walk reached its parent and tried it
  bool accepted = false;
  float confidence = -1;  ///< the drafter's probability when it chose the token; -1: unknown
  double p = -1;          ///< target probability; -1 unless tested
  double q = -1;          ///< of the distribution that it was drawn from, 1 for one-hot; -1 unless tested
  double expected = -1;  ///< the rule's expected acceptance there (sum min(p,q), p(x), ...); -1 unless tested
  int rank = -1;         ///< of the token in the target's row, 0 = best; -1: unknown
  double distance =
      -1;  ///< total variation between the rule's one-step output law and p; -1 for lossless rules
};

/// A node that was fed but not offered for acceptance, see NodeKind.
struct ProbedToken {
  Token id = -1;
  int parent = 0;   ///< node index
  Token best = -1;  ///< of the target's row there; -1 where none was asked for
};

/// Of a tree from several sources: the nodes from `first` up to the next contribution are of `source`.
struct Contribution {
  int first = 0;
  std::string source;
};

/// What one of several devices did in a step, see LoopOptions::devices.
struct DevicePart {
  int rows = 0;         ///< tokens fed there
  std::int64_t ns = 0;  ///< of its forward
};

/// One target forward and all around it.
struct StepRecord {
  std::string source;  ///< what drafted: "draft", "lookup", ...; empty when nothing was drafted
  int accepted = 0;    ///< drafted tokens that were emitted (after cuts)
  int emitted = 0;     ///< tokens that the step added to the text (after cuts)
  EndedBy ended_by = EndedBy::none;
  int rows =
      0;  ///< tokens that the target was fed (all sequences of a batch of prefixes, all devices together)
  int draft_calls = 0;          ///< forwards of the draft model in this step
  std::int64_t pool_size = -1;  ///< n-grams that a copying strategy held when it drafted; -1: no such thing
  PhaseTimes times;
  std::vector<DraftedToken> drafted;        ///< in node order
  std::vector<Contribution> contributions;  ///< empty where `source` drafted all
  std::vector<DevicePart> parts;            ///< by device; empty when there is one only
  std::vector<ProbedToken> probes;  ///< what follows them in node order; of the first steps of a text only
};

/// Why a text ended: the end token, max_tokens, a stop string, the context, or the caller asked for it.
enum class Finish { eos, length, stop, context, cancelled };
const char* to_string(Finish finish);

/// Everything about one decoding of one sequence; the decode loop fills it.
/// The token that prefill gave is tokens[0] and counts in neither tokens nor steps of a metric.
struct GenerationRecord {
  int context_length = 0;      ///< prompt tokens
  std::vector<Token> context;  ///< the prompt itself, where an experiment keeps it; else empty
  std::vector<Token> tokens;   ///< emitted, in order
  /// hash_row() of the target's logits row that each token came from, [tokens]; equal rows have equal hashes.
  std::vector<std::uint32_t> row_hashes;
  Finish finish = Finish::length;
  /// Target prefill until the first token is known (time to first token); where loops share prefills, of the
  /// one that was run.
  std::int64_t prefill_ns = 0;
  std::int64_t draft_prefill_ns = 0;  ///< the strategy's begin()
  std::int64_t decode_ns = 0;         ///< wall time of all steps
  std::int64_t cpu_ns = 0;            ///< CPU time of all steps, all threads
  Work target_prefill, target, draft_prefill, draft;
  int planned_steps = 0;  ///< steps that a device ran by itself, see DevicePlan
  int verified_steps =
      0;  ///< steps that the host drafted and a device verified, one trip through the ring each
  std::int64_t round_trips = 0;  ///< times that decoding waited for a device with a memory of its own
  /// The planned steps once more with stamps of the device's clock, their sum: what the phases are of. 0: not
  /// run so.
  std::int64_t stamped_ns = 0;
  std::vector<StepRecord> steps;
};

/// Fast hash of a logits row's bits; not cryptographic. About 10 GB/s.
std::uint32_t hash_row(const float* row, std::size_t size);

}  // namespace speclab
