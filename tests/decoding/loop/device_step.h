#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/backend/cuda/kernels/accept/start_accept.h"
#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/simulator/machine.h"
#include "core/base/error.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/loop/executors/planned_rounds.h"
#include "tests/backend/cuda/simt_fixture.h"

// Runs acceptance rules on a real or simulated GPU, for rows and trees of core/decoding.

namespace speclab::device_step {

using cuda::DeviceArray;

/// Scripted coins for kernels. One thread asks for the result and shares it with the other threads. Takes the
/// place of cuda::PhiloxCoins.
struct ScriptedCoins {
  const Coins* coins;

  int tell(const cuda::LawSpace& space, const std::function<int()>& ask) const {
    const auto told = space.told();
    simt::block_sync();
    if (simt::thread_index() == 0) told.set(0, static_cast<simt::u64>(ask()));
    simt::block_sync();
    return static_cast<int>(told[0]);
  }
  bool bernoulli(const cuda::LawSpace& space, double probability, std::int64_t, simt::u32, simt::u32) const {
    return tell(space, [&] { return coins->bernoulli(probability, {}) ? 1 : 0; }) == 1;
  }
  template <typename Value>
  int categorical(const cuda::LawSpace& space, int n, const Value& value, std::int64_t, simt::u32,
                  simt::u32) const {
    return tell(space, [&] {
      std::vector<double> weights(static_cast<std::size_t>(n));
      for (int i = 0; i < n; ++i) weights[static_cast<std::size_t>(i)] = value(i);
      return static_cast<int>(coins->categorical(weights, {}));
    });
  }
  template <typename Weight>
  int race(const cuda::LawSpace&, int, const Weight&, std::int64_t, simt::u32) const {
    throw Bug("a script has no noise");
  }
};

/// Rows of probabilities as arrays for the device.
struct Rows {
  std::vector<float> weights;
  std::vector<cuda::Law> laws;
  std::vector<double> sums;  ///< of chunks, in the order of core/base/row_order.h
  int vocab;
  explicit Rows(int size) : vocab(size) {}
  void add(const Distribution& row) {
    const std::size_t begin = weights.size();
    weights.resize(begin + static_cast<std::size_t>(vocab), std::numeric_limits<float>::quiet_NaN());
    cuda::Law law;
    if (row.one_hot()) {
      law.one_hot = row.argmax();
    } else {
      law.sum = row.sum();
      std::copy(row.weights().begin(), row.weights().end(),
                weights.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    laws.push_back(law);
    for (int chunk = 0; chunk < cuda::chunks_of(vocab); ++chunk) {
      double of_lane[kSumLanes] = {}, sum = 0;
      for (int i = chunk * kSumChunk; i < std::min((chunk + 1) * kSumChunk, vocab); ++i)
        of_lane[i % kSumLanes] += static_cast<double>(weights[begin + static_cast<std::size_t>(i)]);
      for (const double each : of_lane) sum += each;
      sums.push_back(sum);
    }
  }
};

inline void check_equal(const cuda::Verdict& v, const cuda::Verdict& w, const char* how) {
  SPECLAB_CHECK(w.next == v.next && w.accepted == v.accepted && w.tested == v.tested && w.bonus == v.bonus &&
                    w.fault == v.fault && w.moves == v.moves,
                "token {} after {} of {} tested nodes {}, {} after {} of {} without", w.next, w.accepted,
                w.tested, how, v.next, v.accepted, v.tested);
  for (int i = 0; i < v.accepted; ++i)
    SPECLAB_CHECK(w.path[i] == v.path[i], "node {} of the path is {} {}, {} without", i, w.path[i], how,
                  v.path[i]);
  for (int i = 0; i < v.moves; ++i)
    SPECLAB_CHECK(w.from[i] == v.from[i] && w.to[i] == v.to[i], "move {} is {} to {} {}, {} to {} without", i,
                  w.from[i], w.to[i], how, v.from[i], v.to[i]);
  for (int i = 0; i < v.tested; ++i)
    SPECLAB_CHECK(w.tested_node[i] == v.tested_node[i] && w.tested_p[i] == v.tested_p[i] &&
                      w.tested_q[i] == v.tested_q[i],
                  "test {} is of node {} with p {} and q {} {}, {} with {} and {} without", i,
                  w.tested_node[i], w.tested_p[i], w.tested_q[i], how, v.tested_node[i], v.tested_p[i],
                  v.tested_q[i]);
}

/// Runs the kernel of the rule with scripted coins, in one block.
inline void accept_scripted(simt::Machine& machine, const cuda::Accept& a, const Coins& coins) {
  const auto run = [&](const auto& kernel) {
    machine.run(kernel,
                {.threads = cuda::law_threads(a.vocab), .shared_bytes = kernel.bytes(a.vocab, false)});
  };
  const ScriptedCoins scripted{&coins};
  if (a.rule == AcceptRule::kPaths) run(cuda::AcceptPathsKernel<ScriptedCoins>{a, scripted});
  else if (a.rule == AcceptRule::kLongest) run(cuda::AcceptLongestKernel<ScriptedCoins>{a, scripted});
  else if (a.rule == AcceptRule::kKSeq) run(cuda::AcceptKSeqKernel<ScriptedCoins>{a, scripted});
  else if (a.rule == AcceptRule::kMultiPath) run(cuda::AcceptMultiPathKernel<ScriptedCoins>{a, scripted});
  else run(cuda::AcceptKernel<ScriptedCoins>{a, scripted});
}

/// Does what accept() does, with the kernel. Fills path, next, bonus and tested (node, p, q, accepted).
/// `moves` gets (from, to) of the cache rows that the commit moves. greedy: the temperature is 0. Scripted
/// coins need a simulated GPU.
inline void accept_on(const cuda::Place& place, const AcceptanceRule& rule, const RuleOptions& options,
                      const Draft& draft, const TargetRows& rows, const Coins& coins, std::int64_t position,
                      Acceptance& out, std::vector<std::pair<int, int>>* moves = nullptr,
                      bool greedy = false) {
  const int nodes = draft.tree.drafted() + 1, vocab = rows(0).p->vocab();
  Rows p(vocab), raw(vocab), q(vocab);
  bool looks_at_raw = false;
  std::vector<std::int32_t> tokens, parents, q_rows;
  for (int node = 0; node < nodes; ++node) {
    const TargetRow row = rows(node);
    p.add(*row.p);
    raw.add(criterion_row(row));
    looks_at_raw = looks_at_raw || &criterion_row(row) != row.p;
    tokens.push_back(draft.tree.token(node));
    parents.push_back(draft.tree.parent(node));
    q_rows.push_back(node == 0 ? -1 : draft.q_of[static_cast<std::size_t>(node)]);
  }
  for (int i = 0; i < draft.q_used; ++i) q.add(draft.q[static_cast<std::size_t>(i)]);
  const DeviceArray<std::int32_t> d_tokens(place, tokens), d_parents(place, parents), d_q_rows(place, q_rows);
  const DeviceArray<float> d_p(place, p.weights), d_raw(place, raw.weights), d_q(place, q.weights);
  const DeviceArray<cuda::Law> d_p_laws(place, p.laws), d_raw_laws(place, raw.laws), d_q_laws(place, q.laws);
  const DeviceArray<std::int64_t> d_position(place, std::vector<std::int64_t>{position});
  const DeviceArray<cuda::Verdict> verdict(place, 1);
  SPECLAB_CHECK(rule.device_form != nullptr, "rule {} on the device", rule.name);
  const DeviceRule found = rule.device_form(options, {.temperature = greedy ? 0.0 : 1.0});
  const DeviceArray<double> residual(place, cuda::accept_scratch(found.rule, nodes, vocab, false));
  cuda::Accept a{.rule = found.rule,
                 .form = found.form,
                 .criterion = found.criterion,
                 .nodes = nodes,
                 .vocab = vocab,
                 .tokens = d_tokens.data(),
                 .parents = d_parents.data(),
                 .p = d_p.data(),
                 .p_laws = d_p_laws.data(),
                 .raw = looks_at_raw ? d_raw.data() : nullptr,
                 .raw_laws = d_raw_laws.data(),
                 .q_rows = d_q_rows.data(),
                 .q = d_q.data(),
                 .q_laws = d_q_laws.data(),
                 .key = coins.key(),
                 .position = d_position.data(),
                 .residual = residual.data(),
                 .verdict = verdict.data()};
  const auto launch = [&] {
    cuda::start_accept(a,
                       [&](const char*, const auto& arguments) { cuda::launch(arguments, place.stream()); });
  };
  if (coins.is_scripted()) accept_scripted(*place.machine(), a, coins);
  else launch();
  const cuda::Verdict v = verdict[0];
  if (!coins.is_scripted()) {  // neither the sums of the rows nor several blocks change anything
    const DeviceArray<double> sums(place, p.sums);
    const DeviceArray<simt::u64> best(place, static_cast<std::size_t>(cuda::row_pieces(vocab)));
    const DeviceArray<simt::u32> arrivals(place, std::vector<simt::u32>(1));
    a.p_sums = sums.data();
    for (const bool several : {false, true}) {
      const DeviceArray<cuda::Verdict> other(place, 1);
      a.verdict = other.data();
      if (several) a.meeting = {best.data(), arrivals.data()};
      launch();
      check_equal(v, other[0], several ? "with several blocks" : "with sums");
      SPECLAB_CHECK(arrivals[0] == 0, "{} arrivals after the launch", arrivals[0]);
    }
  }
  SPECLAB_CHECK(v.fault < 0, "fault at node {}", v.fault);
  out.path.assign(v.path, v.path + v.accepted);
  out.next = v.next;
  out.bonus = v.bonus != 0;
  out.tested.clear();
  for (int i = 0; i < v.tested; ++i) {
    const bool accepted = std::find(out.path.begin(), out.path.end(), v.tested_node[i]) != out.path.end();
    out.tested.push_back({v.tested_node[i], v.tested_p[i], v.tested_q[i], -1, -1, accepted});
  }
  if (moves != nullptr) {
    moves->clear();
    for (int i = 0; i < v.moves; ++i) moves->emplace_back(v.from[i], v.to[i]);
  }
}

}  // namespace speclab::device_step
