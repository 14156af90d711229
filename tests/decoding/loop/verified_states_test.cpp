#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/loop/executors/device_verifier.h"
#include "tests/decoding/loop/planned_loop.h"

// Hidden states that a (simulated) device keeps while it verifies a draft. tests/strategies/heads and
// head_strategy_test.cpp decode whole texts with strategies that read them.

namespace speclab::planned_loop_test {

// A verifier that keeps hidden states gives the verdicts and the rows of one that keeps none, bit for bit.
// The states are those of a forward that the host drives, and only those that are fetched are counted.
TEST(VerifiedStates, StatesStayOnTheDeviceUntilTheyAreFetched) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  const std::size_t hidden = 32, vocab = 64, nodes = 3;
  const auto plain = target->open(64), tapped = target->open(64), host = target->open(64);
  for (Session* session : {plain.get(), tapped.get(), host.get()})
    session->prefill(std::vector<Token>(20, 3));
  PlanShape shape;
  shape.vocab = static_cast<int>(vocab);
  shape.target_capacity = 64;
  const std::vector<int> layers{0, 1, kFinalNorm};
  const auto without = DeviceVerifier::make(shape, *plain, 8),
             with = DeviceVerifier::make(shape, *tapped, 8, layers);
  Draft draft;
  draft.reset(5);
  draft.add(7, 0);
  draft.add(9, 0);
  ASSERT_EQ(draft.tree.size(), static_cast<int>(nodes));

  const std::vector<std::int32_t> all{0, 1, 2};
  std::vector<float> logits(nodes * vocab), states(layers.size() * nodes * hidden);
  std::vector<Tap> taps;
  for (std::size_t i = 0; i < layers.size(); ++i)
    taps.push_back({layers[i], states.data() + i * nodes * hidden, {}, Memory::kHost});
  host->forward(draft.tree.tokens(), draft.tree.parents(), all, logits.data(), taps);

  for (const RoundQueue queue : {RoundQueue::kLaunches, RoundQueue::kGraph, RoundQueue::kGraph}) {
    const PlanRound a = with->verify(draft, 20, 3, Coins(1, 1), queue),
                    b = without->verify(draft, 20, 3, Coins(1, 1), queue);
    EXPECT_EQ(a.accepted, b.accepted);
    EXPECT_EQ(a.tested, b.tested);
    EXPECT_EQ(a.next, b.next);
    EXPECT_EQ(a.bonus, b.bonus);
    std::vector<float> of_tapped(nodes * vocab), of_plain(nodes * vocab);
    with->download(of_tapped);
    without->download(of_plain);
    EXPECT_EQ(of_tapped, logits);
    EXPECT_EQ(of_plain, logits);

    EXPECT_EQ(without->states().states, nullptr);
    const StatesThere there = with->states();
    ASSERT_EQ(there.rows, 4);  // three nodes and padding
    const double before = tapped->work().hidden_bytes;
    std::vector<float> fetched(2 * hidden);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const auto first = static_cast<std::int32_t>(layer) * there.rows;
      tapped->fetch_states(there.states, std::vector<std::int32_t>{first + 2, first}, fetched.data());
      const auto of_node = [&](std::size_t node) {
        return states.begin() + static_cast<std::ptrdiff_t>((layer * nodes + node) * hidden);
      };
      EXPECT_TRUE(std::equal(fetched.begin(), fetched.begin() + 32, of_node(2))) << layer;
      EXPECT_TRUE(std::equal(fetched.begin() + 32, fetched.end(), of_node(0))) << layer;
    }
    EXPECT_EQ(tapped->work().hidden_bytes - before, 3 * 2 * 32 * 4.);
  }
  EXPECT_EQ(plain->work().hidden_bytes, 0);
}

// Nothing is downloaded while a forward is queued, so its taps write to the device, for all rows with logits.
TEST(VerifiedStates, InvalidTapsAreRefused) {
  const ModelPtr target = on_device(random_llama(tiny_shape(), 1));
  const auto session = target->open(64);
  QueuedRows rows;
  rows.rows.n = 1;
  std::vector<float> states(32);
  const std::vector<std::int32_t> chosen{0};
  for (const Tap& tap : {Tap{kFinalNorm, states.data(), {}, Memory::kHost},
                         Tap{kFinalNorm, states.data(), chosen, Memory::kBackend},
                         Tap{3, states.data(), {}, Memory::kBackend},  // of two layers
                         Tap{-2, states.data(), {}, Memory::kBackend}})
    EXPECT_THROW(target->forward(*session, rows, nullptr, {&tap, 1}), Bug);
}

}  // namespace speclab::planned_loop_test
