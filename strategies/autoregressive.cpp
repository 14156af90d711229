// Autoregressive decoding: each target forward gives one token, and nothing is drafted. It is the reference
// for texts and for times. It runs through the same loop as every other strategy.
//
// Paper:       -
// Draft cost:  none.
// Loses when:  memory bandwidth limits the target and some tokens can be guessed.

#include "core/decoding/registry.h"

namespace speclab {
namespace {

class Autoregressive final : public Strategy {
 public:
  Autoregressive(const NoOptions&, const Resources&) {}
  std::optional<DevicePlan> device_plan(const SamplingParams&) const override { return DevicePlan{}; }
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const>, std::span<Draft* const>) override {}
};

const RegisterStrategy<NoOptions, Autoregressive> registered{{
    .name = "autoregressive",
    .summary = "one token per target forward; the reference",
    .paper = "-",
    .draft_source = "none",
    .stop_rule = "none",
    .verification = "none",
    .criterion = "any",
    .loss = "reference",
    .trained = "nothing",
    .is_baseline = true,
    .shows_recording_cost = true,
}};

}  // namespace
}  // namespace speclab
