#include "core/decoding/loop/executors/device_plan_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace speclab {

std::optional<PlanShape> target_plan_shape(const ExecutorSetting& setting, const RunningSequence& sequence,
                                           std::string& reason) {
  const GenerationOptions& options = sequence.request.options;
  if (sequence.rule->device_form == nullptr)
    reason = fmt::format("rule {} runs on the host", sequence.rule->name);
  else if (options.rule_options.streams > 1) reason = "several streams of noise work only on the host";
  else if (setting.options->verify != VerifyWith::one_pass)
    reason = "drafts are verified as a batch of sequences";
  else if (setting.options->devices > 1) reason = "steps are divided over devices";
  else if (sequence.processors)
    reason = "logits processors (repetition_penalty, min_length, banned_tokens) are used";
  else if (sequence.request.coins.is_scripted() || sequence.request.coins.is_watched())
    reason = "scripted and watched coins work only on the host";
  if (!reason.empty()) return std::nullopt;
  const DeviceRule rule = sequence.rule->device_form(options.rule_options, options.sampling);
  PlanShape shape;
  shape.vocab = sequence.vocab();
  shape.target = device_sampling(options.sampling);
  shape.rule = rule.rule;
  shape.form = rule.form;
  shape.criterion = rule.criterion;
  shape.target_offset = setting.target->config().position_offset;
  shape.target_capacity = setting.capacity;
  return shape;
}

PlanSampling device_sampling(const SamplingParams& sampling) {
  PlanSampling out;
  out.greedy = sampling.temperature <= 0;
  if (out.greedy) return out;
  out.scale = static_cast<float>(std::min(1 / sampling.temperature, 1e30));
  out.top_k = sampling.top_k;
  out.top_p = sampling.top_p;
  return out;
}

}  // namespace speclab
