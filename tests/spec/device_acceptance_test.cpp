// Verification by the kernel, on a simulated GPU: the same decisions as accept() bit for bit, and the
// enumeration proof.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/spec/device_step.h"
#include "tests/spec/toy_step.h"

namespace speclab {
namespace {

using device_step::accept_on;

const char* const kRules[] = {"rejection", "one_hot_rejection", "lenience",
                              "uniform_b", "distillspec_lin",   "distillspec_sq",
                              "exact",     "sample_match",      "coupled"};

enum class Kind { generic, zeros, equal, disjoint, one_hot, by_construction, near, last };

Distribution row_of(Kind kind, int vocab, bool for_q, const Distribution* p, std::mt19937& random) {
  std::vector<double> w(static_cast<std::size_t>(vocab));
  const auto number = [&] { return std::exp(3 * std::normal_distribution<double>()(random)); };
  for (double& x : w) x = number();
  if (kind == Kind::zeros) {
    for (double& x : w) x = random() % 3 == 0 ? 0 : x;
    w[random() % w.size()] = 1;
  } else if (kind == Kind::disjoint) {
    for (std::size_t x = 0; x < w.size(); ++x) w[x] = (x % 2 == 0) == for_q || vocab == 1 ? w[x] : 0;
  } else if (kind == Kind::one_hot) {
    std::fill(w.begin(), w.end(), 0.0);
    w[random() % w.size()] = .25;
  } else if ((kind == Kind::near || kind == Kind::equal) && for_q && !p->one_hot()) {
    for (std::size_t x = 0; x < w.size(); ++x)
      w[x] = double(p->weights()[x]) * (kind == Kind::near ? 1 + 1e-6 * double(x % 3) : 1);
  }
  Distribution row;
  if (kind == Kind::by_construction && random() % 2 == 0)
    row.assign_one_hot(static_cast<Token>(random() % w.size()), vocab);
  else
    row.assign_weights(w);
  return row;
}

struct Step {
  Draft draft;
  std::vector<Distribution> p;
};

/// A tree of `nodes` candidates: random parents, or a chain; tokens drawn from their rows, or fixed ones;
/// some probes behind.
Step random_step(Kind kind, int vocab, int nodes, bool chain, const Coins& coins, std::mt19937& random) {
  Step step;
  step.draft.reset(static_cast<Token>(random() % static_cast<unsigned>(vocab)));
  step.p.push_back(row_of(kind, vocab, false, nullptr, random));
  while (step.draft.tree.size() < nodes) {
    const int node = step.draft.tree.size();
    const int parent = chain ? node - 1 : static_cast<int>(random() % static_cast<unsigned>(node));
    if (random() % 4 == 0) {
      step.draft.add(static_cast<Token>(random() % static_cast<unsigned>(vocab)), parent);
    } else {
      int index = -1;
      Distribution& q = step.draft.new_q(&index);
      q = row_of(kind, vocab, true, &step.p[static_cast<std::size_t>(parent)], random);
      const Token token = q.sample(
          coins, {static_cast<std::int64_t>(node), Purpose::draft, static_cast<std::uint32_t>(node)});
      step.draft.add(token, parent, index);
    }
    step.p.push_back(row_of(kind, vocab, false, nullptr, random));
  }
  for (int probes = static_cast<int>(random() % 3); probes > 0; --probes) {
    step.draft.add_probe(static_cast<Token>(random() % static_cast<unsigned>(vocab)),
                         static_cast<int>(random() % static_cast<unsigned>(step.draft.tree.size())));
  }
  return step;
}

/// The kernel against accept(), with the same coins.
void compare(simt::Machine& machine, const Step& step, std::uint64_t seed, std::int64_t position) {
  const RuleOptions options{.lenience = .6, .b = .7, .epsilon = .8};
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
  };
  for (const char* name : kRules) {
    const AcceptanceRule& rule = find_acceptance_rule(name);
    if (rule.name == "lenience" &&
        std::any_of(step.p.begin(), step.p.end(), [](const Distribution& p) { return p.one_hot(); }))
      continue;  // looks at the raw row: the host's
    SCOPED_TRACE(fmt::format("{}, seed {}, position {}", name, seed, position));
    const Coins coins(seed, 3);
    Acceptance host, device;
    host.want_expected = false;
    accept(rule, options, step.draft, rows, coins, position, host);
    std::vector<std::pair<int, int>> moves;
    accept_on(machine, rule, options, step.draft, rows, coins, position, device, &moves);
    ASSERT_EQ(device.path, host.path);
    ASSERT_EQ(device.next, host.next);
    ASSERT_EQ(device.bonus, host.bonus);
    ASSERT_EQ(device.tested.size(), host.tested.size());
    for (std::size_t i = 0; i < host.tested.size(); ++i) {
      EXPECT_EQ(device.tested[i].node, host.tested[i].node);
      EXPECT_EQ(device.tested[i].p, host.tested[i].p);
      EXPECT_EQ(device.tested[i].q, host.tested[i].q);
      EXPECT_EQ(device.tested[i].accepted, host.tested[i].accepted);
    }
    // The moves leave the path's rows behind the pending token's, each read before it is overwritten.
    std::vector<int> slots(static_cast<std::size_t>(step.draft.tree.size()));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int>(i);
    for (const auto& [from, to] : moves) {
      ASSERT_GT(from, to);
      slots[static_cast<std::size_t>(to)] = slots[static_cast<std::size_t>(from)];
    }
    for (std::size_t i = 0; i < host.path.size(); ++i) ASSERT_EQ(slots[i + 1], host.path[i]);
  }
}

TEST(DeviceAcceptance, ChainsAndTreesAreDecidedAsOnTheHost) {
  std::mt19937 random(5);
  simt::Machine machine(6);
  for (int kind = 0; kind < static_cast<int>(Kind::last); ++kind) {
    for (const int vocab : {1, 2, 3, 7, 63, 64, 65, 1023, 2050}) {
      for (int repeat = 0; repeat < (vocab > 100 ? 1 : 3); ++repeat) {
        SCOPED_TRACE(fmt::format("rows {}, vocabulary {}, repeat {}", kind, vocab, repeat));
        const std::uint64_t seed = random();
        const int nodes = 1 + static_cast<int>(random() % (vocab > 100 ? 5 : 24));
        const Step step =
            random_step(static_cast<Kind>(kind), vocab, nodes, random() % 2 == 0, Coins(seed + 1, 3), random);
        ASSERT_NO_FATAL_FAILURE(compare(machine, step, seed, static_cast<std::int64_t>(random()) << 8));
      }
    }
  }
}

TEST(DeviceAcceptance, TheTargetsVocabulary) {
  std::mt19937 random(7);
  simt::Machine machine(8);
  const Step step = random_step(Kind::generic, 49152, 4, false, Coins(1, 3), random);
  compare(machine, step, 2, 40);
}

TEST(DeviceAcceptance, ADraftWhoseTokenHasNoMassIsReported) {
  simt::Machine machine(1);
  Step step;
  step.draft.reset(0);
  int index = -1;
  step.draft.new_q(&index).assign_weights(std::vector<double>{0, 1});
  step.draft.add(0, 0, index);
  step.p.resize(2);
  for (Distribution& p : step.p) p.assign_weights(std::vector<double>{1, 1});
  Acceptance out;
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
  };
  EXPECT_THROW(
      accept_on(machine, find_acceptance_rule("rejection"), {}, step.draft, rows, Coins(1, 1), 0, out), Bug);
}

// The proof that accept() passes (enumeration_test.cpp), for the kernel.
class DeviceLossless : public testing::TestWithParam<const char*> {};

TEST_P(DeviceLossless, EmitsTheTargetsJointLaw) {
  using namespace enumerate;
  const AcceptanceRule& rule = find_acceptance_rule(GetParam());
  simt::Machine machine(2);
  const Verify verify = [&](auto&&... all) { accept_on(machine, all...); };
  const struct {
    int vocab;
    enumerate::Shape shape;
  } cases[] = {{5, {{1}}}, {4, {{3}}}, {3, {{1, 2}}}, {2, {{2, 1}}}};
  std::mt19937 random(17);
  for (const auto& c : cases) {
    for (const enumerate::Rows kind : kAllRows) {
      const int length = static_cast<int>(c.shape.widths.size()) + 1;
      const World world = random_world(c.vocab, length, kind, false, random);
      for (const Draws draws : kAllDraws) {
        const enumerate::Law law = law_of([&](const Coins& coins) {
          return emit(world, c.shape, draws, rule, {.epsilon = 1}, length, coins, verify);
        });
        const std::map<enumerate::Outcome, double> target = target_law(world, length);
        double worst = 0;
        for (const auto& [outcome, mass] : target)
          worst = std::max(worst, std::abs(mass - (law.mass.count(outcome) > 0 ? law.mass.at(outcome) : 0)));
        for (const auto& [outcome, mass] : law.mass)
          worst = std::max(worst, target.count(outcome) > 0 ? 0 : mass);
        EXPECT_LE(worst, 1e-12) << GetParam() << ", rows " << static_cast<int>(kind) << ", draws "
                                << static_cast<int>(draws) << ", vocabulary " << c.vocab;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, DeviceLossless,
                         testing::Values("rejection", "one_hot_rejection", "sample_match"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace speclab
