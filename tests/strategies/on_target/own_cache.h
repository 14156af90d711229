#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"
#include "core/theory/audit/enumerate.h"
#include "tests/decoding/loop/loop_fixture.h"

/// Helpers for tests of strategies that draft on the target's own sessions: the exact law of what they emit,
/// and the bytes of the target's cache after every step.
namespace speclab::fixtures {

inline ModelPtr deep_target(int layers = 4, int vocab = 64, std::uint64_t seed = 5) {
  Shape shape = tiny_shape();
  shape.layers = layers;
  shape.vocab = vocab;
  return load_tiny(random_llama(shape, seed));
}

/// The law of the next `count` tokens, from prefills of all prefixes.
inline std::map<enumerate::Outcome, double> target_law(const Model& model, const std::vector<Token>& prompt,
                                                       int count) {
  std::map<enumerate::Outcome, double> law{{{}, 1}};
  for (int i = 0; i < count; ++i) {
    std::map<enumerate::Outcome, double> longer;
    for (const auto& [text, mass] : law) {
      std::vector<Token> all = prompt;
      all.insert(all.end(), text.begin(), text.end());
      std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
      model.open(64)->prefill(all, logits.data());
      Distribution row;
      row.assign_logits(logits, {.temperature = 1, .top_k = 0, .top_p = 1}, {}, model.config().vocab);
      std::vector<double> p;
      row.probabilities(p);
      for (Token next = 0; next < model.config().vocab; ++next) {
        enumerate::Outcome more = text;
        more.push_back(next);
        longer[more] += mass * p[static_cast<std::size_t>(next)];
      }
    }
    law = std::move(longer);
  }
  return law;
}

/// The law of the text that a generation at temperature 1 emits. `accepted` is the sum of the accepted tokens
/// of all runs.
inline std::map<enumerate::Outcome, double> emitted_law(Decode decode, int tokens, const std::string& rule,
                                                        int* accepted,
                                                        std::shared_ptr<const StepCosts> costs = nullptr) {
  decode.options = {{"max_tokens", tokens}, {"temperature", 1}, {"rule", rule}};
  LoopOptions loop_options;
  loop_options.capacity = 32;
  loop_options.costs = std::move(costs);
  DecodeLoop loop(decode.target, decode.draft, decode.strategy, loop_options);
  Request request = decode.request();
  return enumerate::law_of([&](const Coins& coins) {
           request.coins = coins;
           const GenerationRecord record = loop.run(request);
           *accepted += total(record, &StepRecord::accepted);
           return record.tokens;
         })
      .mass;
}

/// The bytes of the first `positions` positions of a session's cache. copy_kv() copies whole blocks of slots,
/// so the slots behind these positions are overwritten with the zeros of slots that nothing was copied to.
inline std::vector<char> cache_bytes(const Session& session, int positions) {
  constexpr int kSlots = 512, kBehind = 128;
  Backend& backend = session.model().backend();
  const KvStore& kv = session.cache();
  KvStore copy = backend.allocate_kv(kv.layers, kv.kv_heads, kv.head_dim, kSlots);
  backend.copy_kv(kv, positions, copy);
  std::vector<std::int32_t> from(kBehind), to(kBehind);
  std::iota(from.begin(), from.end(), kSlots - kBehind);
  std::iota(to.begin(), to.end(), positions);
  backend.move_slots(copy, from, to);
  std::vector<char> bytes(copy.bytes);
  std::memcpy(bytes.data(), copy.data.get(), copy.bytes);
  return bytes;
}

/// Runs a strategy and compares the target's cache after every step with that of plain decoding.
class WatchedCache final : public Strategy {
 public:
  static inline std::optional<StrategyChoice> choice;
  static inline int steps = 0, rejections = 0;
  explicit WatchedCache(const Resources& resources)
      : inside_(choice->make(resources)),
        resources_(resources),
        plain_(resources.target->open(resources.capacity)) {}
  TargetUse target_use() const override { return inside_->target_use(); }
  void begin(const Sequence& sequence) override {
    plain_->rewind(0);
    inside_->begin(sequence);
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    inside_->draft(sequences, drafts);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    inside_->observe(sequences, outcomes);
    const Sequence& sequence = *sequences[0];
    const Session& own = resources_.target_session(sequence);
    const auto& text = sequence.tokens;
    while (plain_->length() + 1 < static_cast<int>(text.size())) {  // one token after the other
      const std::int32_t root = -1;
      const int first = 0;
      plain_->forward(TokenSpan(text).subspan(static_cast<std::size_t>(plain_->length()), 1), {&root, 1}, {},
                      nullptr);
      plain_->commit({&first, 1});
    }
    ASSERT_EQ(own.length(), plain_->length());
    ASSERT_EQ(own.in_flight(), 0);
    ASSERT_TRUE(cache_bytes(own, own.length()) == cache_bytes(*plain_, own.length())) << "step " << steps;
    ++steps;
    rejections += !outcomes[0].acceptance->bonus;
  }

 private:
  std::unique_ptr<Strategy> inside_;
  Resources resources_;
  std::unique_ptr<Session> plain_;
};

/// Samples four texts and watches the target's cache. `sees_all`: drafts see the whole cache with all layers,
/// so every token is accepted.
inline void expect_cache_of_plain_decoding(const ModelPtr& target, const ModelPtr& draft,
                                           const StrategyChoice& strategy, bool sees_all = false) {
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<WatchedCache>(resources);
      });
  WatchedCache::choice = strategy;
  WatchedCache::steps = WatchedCache::rejections = 0;
  for (unsigned seed = 0; seed < 4; ++seed)
    Decode{.target = target,
           .draft = draft,
           .strategy = StrategyChoice(entry),
           .options = {{"max_tokens", 40}, {"temperature", .6}},
           .coins = Coins(seed, 1)}
        .run();
  EXPECT_GE(WatchedCache::steps, 20);
  EXPECT_EQ(WatchedCache::rejections > 5, !sees_all);
}

}  // namespace speclab::fixtures
