#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Faults that are planted in a running engine. They show whether `speclab compare` finds a slowdown or a
/// loss of acceptance and names the part of the step that has it.
namespace speclab::planted {

/// Where the fault is. A delay is spun, not slept, so it takes processor time like slower code would.
enum class Fault {
  none,
  draft,         ///< a delay in each draft
  verification,  ///< a delay in each forward of the target
  bookkeeping,   ///< a delay in each commit, which belongs to phase "other"
  acceptance,    ///< drafted tokens are replaced by random ones
};
std::string_view to_string(Fault fault);

struct Plant {
  Fault fault = Fault::none;
  /// For a delay: its length as a share of the time of the step before it, that step's own delay left out.
  /// For `acceptance`: the probability with which a drafted token is replaced. If alpha is the acceptance
  /// without the fault, about amount * alpha of it is lost.
  double amount = 0;
  std::uint64_t seed = 1;  ///< of the replaced tokens
};

/// Reads "FAULT=AMOUNT", such as "draft=0.03". Throws Error for an unknown fault, for a delay that is not
/// above 0 and at most 100, and for a probability that is not above 0 and at most 1.
Plant parse_plant(const std::string& text);

/// The length of the delay after a step that took `last_step_ns` without its own delay.
std::int64_t delay_ns(const Plant& plant, std::int64_t last_step_ns);

/// What was planted since the last call of set_plant(). It counts the steps of all decode loops, warm-up
/// included, except those of the autoregressive case.
struct Tally {
  std::int64_t steps = 0;                  ///< finished steps
  std::int64_t step_ns = 0;                ///< their time without the delays
  std::int64_t last_ns = 0;                ///< the time of the last of them without its delay
  std::int64_t delay_ns = 0;               ///< time of the delays in finished steps, as the clock saw it
  std::int64_t drafted = 0, replaced = 0;  ///< with `acceptance`: drafted tokens, and how many were replaced
};

/// Plants this fault in all decode loops that are made from now on, in place of the one before, and sets the
/// tally to 0. Not for several threads.
void set_plant(const Plant& plant);
const Plant& current_plant();
Tally& tally();

}  // namespace speclab::planted
