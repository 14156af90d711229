#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string_view>
#include <vector>

#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/decoding/rows/distribution.h"
#include "tests/decoding/loop/device_step.h"

// Random rows, logits and trees, with which tests compare sampling and verification on the device with those
// on the host.

namespace speclab::device_step {

/// greedy: all rows of the target are one-hot, as at temperature 0.
enum class Kind { generic, zeros, equal, disjoint, one_hot, by_construction, near, greedy, last };

inline Distribution row_of(Kind kind, int vocab, bool for_q, const Distribution* p, std::mt19937& random) {
  std::vector<double> w(static_cast<std::size_t>(vocab));
  const auto number = [&] { return std::exp(3 * std::normal_distribution<double>()(random)); };
  for (double& x : w) x = number();
  if (kind == Kind::zeros) {
    for (double& x : w) x = random() % 3 == 0 ? 0 : std::ceil(x);  // ties
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
  if ((kind == Kind::by_construction && random() % 2 == 0) || (kind == Kind::greedy && !for_q))
    row.assign_one_hot(static_cast<Token>(random() % w.size()), vocab);
  else row.assign_weights(w);
  return row;
}

struct Step {
  Draft draft;
  std::vector<Distribution> p, raw;  ///< raw: what criteria read if p is one-hot
};

/// The children of a node. any: some are drawn, each from a row of its own or from that of the sibling before
/// it, and others are copied. alike: all are drawn, or all are copied.
enum class Siblings { any, alike };

/// A draft of `nodes` nodes, with random parents or as a chain. Its tokens are drawn from q or have no q. Up
/// to two probes follow.
inline Step random_step(Kind kind, int vocab, int nodes, bool chain, const Coins& coins, std::mt19937& random,
                        Siblings siblings = Siblings::any) {
  Step step;
  step.draft.reset(static_cast<Token>(random() % static_cast<unsigned>(vocab)));
  const auto add_rows = [&] {
    step.p.push_back(row_of(kind, vocab, false, nullptr, random));
    step.raw.push_back(
        row_of(random() % 2 == 0 ? Kind::generic : Kind::zeros, vocab, false, nullptr, random));
  };
  add_rows();
  while (step.draft.tree.size() < nodes) {
    const int node = step.draft.tree.size();
    const int parent = chain ? node - 1 : static_cast<int>(random() % static_cast<unsigned>(node));
    const bool copied = siblings == Siblings::alike ? parent % 4 == 3 : random() % 4 == 0;
    if (copied) {
      step.draft.add(static_cast<Token>(random() % static_cast<unsigned>(vocab)), parent);
    } else {
      int index = step.draft.tree.parent(node - 1) == parent ? step.draft.q_of.back() : Draft::kOneHot;
      if (index == Draft::kOneHot || random() % 2 == 0) {
        step.draft.new_q(&index) =
            row_of(kind, vocab, true, &step.p[static_cast<std::size_t>(parent)], random);
        // Rows that are one-hot count as copied tokens.
        if (siblings == Siblings::alike && step.draft.q[static_cast<std::size_t>(index)].one_hot())
          step.draft.q[static_cast<std::size_t>(index)] = row_of(Kind::generic, vocab, true, nullptr, random);
      }
      const Distribution& q = step.draft.q[static_cast<std::size_t>(index)];
      const Token token = q.sample(
          coins, {static_cast<std::int64_t>(node), Purpose::draft, static_cast<std::uint32_t>(node)});
      step.draft.add(token, parent, index);
    }
    add_rows();
  }
  for (int probes = static_cast<int>(random() % 3); probes > 0; --probes) {
    step.draft.add_probe(static_cast<Token>(random() % static_cast<unsigned>(vocab)),
                         static_cast<int>(random() % static_cast<unsigned>(step.draft.tree.size())));
  }
  return step;
}

/// A draft of independent paths that begin at the pending token, of at most `length` tokens. Nodes after
/// equal tokens have rows q of equal bits, at one place or at several, and rows p of their own. Two of the
/// paths often have equal tokens. Where q gives a drawn token little mass, a path ends early.
inline Step random_paths(Kind kind, int vocab, int paths, int length, const Coins& coins,
                         std::mt19937& random) {
  Step step;
  step.draft.reset(static_cast<Token>(random() % static_cast<unsigned>(vocab)));
  const auto add_rows = [&] {
    step.p.push_back(row_of(kind, vocab, false, nullptr, random));
    step.raw.push_back(row_of(Kind::generic, vocab, false, nullptr, random));
  };
  add_rows();
  struct After {
    int law;      ///< of the token after these tokens
    bool copied;  ///< a token that one path copies
  };
  std::map<std::vector<Token>, After> after;
  const bool early = random() % 4 == 0;
  for (int path = 0; path < paths; ++path) {
    std::vector<Token> tokens;
    int parent = 0;
    for (int depth = 0; depth < length; ++depth) {
      const int node = step.draft.tree.size();
      auto found = after.find(tokens);
      if (found == after.end()) {
        int law = -1;
        Distribution& q = step.draft.new_q(&law);
        q = row_of(kind, vocab, true, &step.p[static_cast<std::size_t>(parent)], random);
        found = after.emplace(tokens, After{law, paths == 1 && random() % 5 == 0}).first;
      } else if (random() % 3 == 0) {
        int law = -1;
        Distribution& q = step.draft.new_q(&law);  // may move the rows
        q = step.draft.q[static_cast<std::size_t>(found->second.law)];
        found->second.law = law;
      }
      const Distribution& q = step.draft.q[static_cast<std::size_t>(found->second.law)];
      const Token token = q.sample(
          coins, {static_cast<std::int64_t>(node), Purpose::draft, static_cast<std::uint32_t>(node)});
      step.draft.add(token, parent, found->second.copied ? Draft::kOneHot : found->second.law);
      add_rows();
      if (early && q.prob(token) < .2) break;
      parent = node;
      tokens.push_back(token);
    }
  }
  return step;
}

inline bool refuses(const AcceptanceRule& rule, const Draft& draft) {
  try {
    if (rule.require != nullptr) rule.require(draft);
  } catch (const Error&) {
    return true;
  }
  return false;
}

/// How often each rule judged a draft in which a node has several children.
using Judged = std::map<std::string_view, int>;

/// Compares the kernel with accept() for the same coins, for all rules that judge the draft.
inline void compare(const cuda::Place& place, const Step& step, std::uint64_t seed, std::int64_t position,
                    Judged* judged = nullptr) {
  const RuleOptions options{.lenience = .6,
                            .b = .7,
                            .beta = 2,
                            .gap = 1,
                            .epsilon = .8,
                            .delta = .9,
                            .theta = .02,
                            .top_k = 4,
                            .distance = 3,
                            .min_block = 3};
  const auto one_hot =
      std::count_if(step.p.begin(), step.p.end(), [](const Distribution& p) { return p.one_hot(); });
  const bool greedy = one_hot == static_cast<std::ptrdiff_t>(step.p.size());
  const TargetRows rows = [&](int node) {
    const auto at = static_cast<std::size_t>(node);
    return TargetRow{&step.p[at], &step.raw[at]};
  };
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.device_form == nullptr || refuses(rule, step.draft)) continue;
    const std::string_view name = rule.name;
    if (name == "lenience" && one_hot > 0 && !greedy) continue;  // the device form knows one temperature
    if (name == "iterative" && place.machine() != nullptr && step.p[0].vocab() > 100)
      continue;  // too slow: a pass over the row for each redraw
    SCOPED_TRACE(fmt::format("{}, seed {}, position {}", name, seed, position));
    if (judged != nullptr && step.draft.tree.max_depth() < step.draft.tree.drafted()) ++(*judged)[name];
    const Coins coins(seed, 3);
    Acceptance host, device;
    host.want_expected = false;
    accept(rule, options, step.draft, rows, coins, position, host);
    std::vector<std::pair<int, int>> moves;
    accept_on(place, rule, options, step.draft, rows, coins, position, device, &moves, greedy);
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
    // The moves put the rows of the path directly after the pending token's row. Each row is read before it
    // is overwritten.
    std::vector<int> slots(static_cast<std::size_t>(step.draft.tree.size()));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int>(i);
    for (const auto& [from, to] : moves) {
      ASSERT_GT(from, to);
      slots[static_cast<std::size_t>(to)] = slots[static_cast<std::size_t>(from)];
    }
    for (std::size_t i = 0; i < host.path.size(); ++i) ASSERT_EQ(slots[i + 1], host.path[i]);
  }
}

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<float> random_logits(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& z : logits) {
    z = normal(random);
    if (random() % 8 == 0) z = 0;
    if (random() % 8 == 0) z = -0.0f;
    if (random() % 16 == 0) z = -kInfinity;
    if (random() % 16 == 0) z = std::round(z);  // ties
    if (random() % 64 == 0) z = -200;
  }
  logits[random() % logits.size()] = 3;
  return logits;
}

struct Laws {
  std::vector<float> weights;
  std::vector<cuda::Law> laws;
  std::vector<double> sums;  ///< of chunks, by column
};

/// Memory in which the blocks of a row meet. Its counters are zero before and after each launch.
class Meeting {
 public:
  Meeting(const cuda::Place& place, int rows, int columns)
      : best_(place, static_cast<std::size_t>(rows * cuda::row_pieces(columns))),
        arrivals_(place, std::vector<simt::u32>(static_cast<std::size_t>(rows))),
        cuts_(place, static_cast<std::size_t>(rows)) {}
  cuda::RowCut* cuts() const { return cuts_.data(); }
  cuda::RowMeeting memory() const { return {best_.data(), arrivals_.data()}; }
  void expect_zeros() const {
    for (const simt::u32 arrived : arrivals_.host()) EXPECT_EQ(arrived, 0u);
  }

 private:
  DeviceArray<simt::u64> best_;
  DeviceArray<simt::u32> arrivals_;
  DeviceArray<cuda::RowCut> cuts_;
};

/// `several`: rows may have several blocks.
inline Laws standardise_with(const cuda::Place& place, const std::vector<float>& logits, int rows, int vocab,
                             const SamplingParams& params, const std::vector<Token>& ids, bool several) {
  const int columns = static_cast<int>(logits.size()) / rows;
  const DeviceArray<float> d_logits(place, logits), weights(place, static_cast<std::size_t>(rows * vocab));
  const DeviceArray<std::int32_t> d_ids(place, std::vector<std::int32_t>(ids.begin(), ids.end()));
  const DeviceArray<cuda::Law> laws(place, static_cast<std::size_t>(rows));
  const DeviceArray<double> sums(place, static_cast<std::size_t>(rows * cuda::chunks_of(vocab)));
  const Meeting meeting(place, rows, columns);
  cuda::start_laws(cuda::Standardise{.logits = d_logits.data(),
                                     .ids = ids.empty() ? nullptr : d_ids.data(),
                                     .rows = rows,
                                     .columns = columns,
                                     .vocab = vocab,
                                     .greedy = params.temperature <= 0,
                                     .scale = static_cast<float>(std::min(1 / params.temperature, 1e30)),
                                     .top_k = params.top_k,
                                     .top_p = params.top_p,
                                     .weights = weights.data(),
                                     .laws = laws.data(),
                                     .sums = sums.data(),
                                     .meeting = several ? meeting.memory() : cuda::RowMeeting{},
                                     .cuts = several ? meeting.cuts() : nullptr},
                   [&](const char*, const auto& arguments) { cuda::launch(arguments, place.stream()); });
  meeting.expect_zeros();
  return {weights.host(), laws.host(), sums.host()};
}

/// The laws, computed with one block for each row. Expects the same bits with several blocks for each row.
inline Laws standardise(const cuda::Place& place, const std::vector<float>& logits, int rows, int vocab,
                        const SamplingParams& params, const std::vector<Token>& ids = {}) {
  const Laws one = standardise_with(place, logits, rows, vocab, params, ids, false);
  if (static_cast<int>(logits.size()) / rows <= cuda::kRowPiece) return one;
  const Laws several = standardise_with(place, logits, rows, vocab, params, ids, true);
  for (int row = 0; row < rows; ++row) {
    const cuda::Law &a = one.laws[static_cast<std::size_t>(row)],
                    &b = several.laws[static_cast<std::size_t>(row)];
    EXPECT_EQ(a.sum, b.sum);
    EXPECT_EQ(a.one_hot, b.one_hot);
    EXPECT_EQ(a.invalid, b.invalid);
  }
  EXPECT_TRUE(fixtures::same_bits(one.weights.data(), several.weights.data(), one.weights.size()));
  EXPECT_EQ(std::memcmp(one.sums.data(), several.sums.data(), one.sums.size() * sizeof(double)), 0);
  return one;
}

inline void expect_same(const Distribution& host, const Laws& device, int row) {
  const auto vocab = static_cast<std::size_t>(host.vocab());
  const cuda::Law& law = device.laws[static_cast<std::size_t>(row)];
  ASSERT_EQ(law.invalid, -1);
  if (host.one_hot()) {
    ASSERT_EQ(law.one_hot, host.argmax());
    return;
  }
  ASSERT_EQ(law.one_hot, -1);
  EXPECT_EQ(law.sum, host.sum());
  for (std::size_t i = 0; i < vocab; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(device.weights[static_cast<std::size_t>(row) * vocab + i]),
              std::bit_cast<std::uint32_t>(host.weights()[i]))
        << i;
  }
}

/// `known`: the kernel gets the sums of the chunks, and rows may have several blocks.
inline std::vector<Token> sample_with(const cuda::Place& place, const Distribution& row, const Coins& coins,
                                      const std::vector<std::int64_t>& positions, simt::u32 purpose,
                                      simt::u32 draw, bool coupled, bool known) {
  const int vocab = row.vocab(), rows = static_cast<int>(positions.size());
  Rows device(vocab);
  for (int i = 0; i < rows; ++i) device.add(row);
  const DeviceArray<float> weights(place, device.weights);
  const DeviceArray<cuda::Law> laws(place, device.laws);
  const DeviceArray<double> sums(place, device.sums);
  const Meeting meeting(place, rows, vocab);
  const DeviceArray<std::int64_t> at(place, positions);
  const DeviceArray<std::int32_t> tokens(place, positions.size());
  cuda::launch(cuda::Sample{.weights = weights.data(),
                            .laws = laws.data(),
                            .sums = known ? sums.data() : nullptr,
                            .rows = rows,
                            .vocab = vocab,
                            .key = coins.key(),
                            .positions = at.data(),
                            .purpose = purpose,
                            .draw = draw,
                            .coupled = coupled,
                            .tokens = tokens.data(),
                            .meeting = known ? meeting.memory() : cuda::RowMeeting{}},
               place.stream());
  meeting.expect_zeros();
  return tokens.host();
}

/// The tokens that the kernel draws without known sums. Expects the same tokens with them.
inline std::vector<Token> sample(const cuda::Place& place, const Distribution& row, const Coins& coins,
                                 const std::vector<std::int64_t>& positions, simt::u32 purpose,
                                 simt::u32 draw, bool coupled) {
  const auto with = [&](bool known) {
    return sample_with(place, row, coins, positions, purpose, draw, coupled, known);
  };
  const std::vector<Token> tokens = with(false);
  EXPECT_EQ(with(true), tokens);
  return tokens;
}

}  // namespace speclab::device_step
