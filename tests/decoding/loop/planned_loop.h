#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/decoding/loop/loop_fixture.h"

// Compares decoding on a device with decoding driven by the host: the device runs whole steps (planned
// steps), or it only verifies.

namespace speclab::planned_loop_test {

using namespace speclab::fixtures;

inline ModelPtr on_device(const TinyModel& tiny, const ModelPtr& target = nullptr) {
  static const std::shared_ptr<Backend> backend = make_cuda_backend({.simulated = true});
  return load_tiny_on(target ? std::shared_ptr<Backend>(target, &target->backend()) : backend, tiny, target);
}

/// A target without layers. It is fast, for tests of rules and limits.
inline ModelPtr table_on_device(int vocab, std::uint64_t seed, double spread = 2) {
  return on_device(random_table(vocab, seed, spread));
}

/// A table in which token t + 1 is the best token after token t. broken: the row after token 7 is invalid,
/// because its logit of token 4 overflows.
inline TinyModel counting_table(bool broken) {
  std::vector<float> logits(20 * 20, 0.f);
  for (int token = 0; token < 20; ++token)
    logits[static_cast<std::size_t>(token * 20 + (token + 1) % 20)] = 5;
  if (broken) logits[7 * 20 + 4] = 3e38f;
  TinyModel tiny = markov_table(20, logits);
  tiny.tensors["token_embedding"].values[7 * 20 + 7] = 4;
  return tiny;
}

inline void expect_equal(const Work& a, const Work& b, const char* of) {
  EXPECT_EQ(a.calls, b.calls) << of;
  EXPECT_EQ(a.rows, b.rows) << of;
  EXPECT_EQ(a.logit_rows, b.logit_rows) << of;
  EXPECT_EQ(a.keys, b.keys) << of;
  EXPECT_EQ(a.flops, b.flops) << of;
  EXPECT_EQ(a.weight_bytes, b.weight_bytes) << of;
  EXPECT_EQ(a.kv_bytes, b.kv_bytes) << of;
}

inline void expect_equal(const GenerationRecord& planned, const GenerationRecord& host) {
  EXPECT_EQ(planned.tokens, host.tokens);
  EXPECT_EQ(planned.row_hashes, host.row_hashes);
  EXPECT_EQ(planned.finish, host.finish);
  ASSERT_EQ(planned.steps.size(), host.steps.size());
  for (std::size_t i = 0; i < host.steps.size(); ++i) {
    const StepRecord &a = planned.steps[i], &b = host.steps[i];
    SCOPED_TRACE("step " + std::to_string(i));
    EXPECT_EQ(a.source, b.source);
    EXPECT_EQ(a.accepted, b.accepted);
    EXPECT_EQ(a.emitted, b.emitted);
    EXPECT_EQ(a.ended_by, b.ended_by);
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_EQ(a.draft_calls, b.draft_calls);
    ASSERT_EQ(a.drafted.size(), b.drafted.size());
    for (std::size_t j = 0; j < a.drafted.size(); ++j) {
      const DraftedToken &x = a.drafted[j], &y = b.drafted[j];
      EXPECT_EQ(x.id, y.id);
      EXPECT_EQ(x.parent, y.parent);
      EXPECT_EQ(x.tested, y.tested);
      EXPECT_EQ(x.accepted, y.accepted);
      EXPECT_EQ(x.confidence, y.confidence);
      EXPECT_EQ(x.p, y.p);
      EXPECT_EQ(x.q, y.q);
      EXPECT_EQ(x.expected, y.expected);
      EXPECT_EQ(x.rank, y.rank);
      EXPECT_EQ(x.distance, y.distance);
      EXPECT_EQ(x.kl, y.kl);
    }
  }
  expect_equal(planned.target, host.target, "target");
  expect_equal(planned.draft, host.draft, "draft");
}

/// True if a strategy says that it reads the target's rows. The host then verifies its drafts.
inline bool reads_rows(const StrategyChoice& strategy, const ModelPtr& target, const ModelPtr& draft) {
  Resources resources;
  resources.target = target;
  resources.draft = draft;
  resources.drafts = {draft};
  resources.capacity = 256;
  return strategy.make(resources)->reads().rows;
}

/// Decodes twice: the host drives every step, and the device runs whole steps. Expects equal results. Returns
/// those of the device.
inline GenerationRecord compare(Decode decode) {
  decode.options["device_loop"] = "off";
  const GenerationRecord host = decode.run();
  EXPECT_EQ(host.planned_steps, 0);
  EXPECT_EQ(host.round_trips, host.target.calls + host.draft.calls);
  decode.options["device_loop"] = "on";
  const GenerationRecord planned = decode.run();
  expect_equal(planned, host);
  EXPECT_EQ(planned.planned_steps, static_cast<int>(planned.steps.size()));
  EXPECT_EQ(planned.verified_steps, 0);
  EXPECT_EQ(planned.round_trips, 0);
  return planned;
}

/// Decodes twice: the host drives every step, and the host drafts while the device verifies. Expects equal
/// results. Returns those of the device.
inline GenerationRecord compare_verdicts(Decode decode) {
  decode.options["device_loop"] = "off";
  const GenerationRecord host = decode.run();
  EXPECT_EQ(host.verified_steps, 0);
  decode.options["device_loop"] = "on";
  const GenerationRecord verified = decode.run();
  expect_equal(verified, host);
  EXPECT_EQ(verified.planned_steps, 0);
  EXPECT_EQ(verified.verified_steps, static_cast<int>(verified.steps.size()));
  EXPECT_EQ(verified.round_trips, static_cast<std::int64_t>(verified.steps.size()) + verified.draft.calls);
  return verified;
}

}  // namespace speclab::planned_loop_test
