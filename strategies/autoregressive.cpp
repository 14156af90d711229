// Autoregressive decoding: one token per target forward, nothing drafted.
// The reference for texts and for times: it runs through exactly the loop that every other strategy runs
// through.
//
// Paper:       -
// Draft cost:  none.
// Loses when:  the target is bound by memory bandwidth and anything at all can be guessed.

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
}};

}  // namespace
}  // namespace speclab
