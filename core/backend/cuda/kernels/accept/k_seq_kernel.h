#pragma once

#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Verifies a draft by K-SEQ (AcceptRule::kKSeq). The host's side is core/decoding/rules/rules_k_seq.cpp,
// which explains groups of children, beta, and rho (a factor by which the tests of a group divide p). The
// decisions on the device have the same bits as on the host.
//
// One block walks the tree. The bisection for the rho of a group of several children makes 35 to 38 passes
// over p and q. One pass over the two rows, 1 MiB for a vocabulary of 128,256, takes the block about 8 us or
// more, so a node with such a group takes about 0.3 ms or more (predicted). A group of one child needs such a
// pass only if the child is rejected.

namespace speclab::cuda {

/// Arguments of the kernel. `of.residual` has accept_scratch() entries (start_accept.h).
struct AcceptKSeq {
  Accept of;
};

inline namespace SPECLAB_SIDE {

/// The law (distribution) that remains of p after the failed children. On the host: the vector `law`.
struct LawLeft {
  LawRow p;
  const double* stored = nullptr;  ///< weights; null: the law is still p
  double sum = 1;                  ///< sum of `stored`

  SPECLAB_DEVICE double prob_of(double weight) const { return weight / sum; }
  SPECLAB_DEVICE double prob(int x) const {
    return stored == nullptr || p.one_hot >= 0 ? p.prob(x) : prob_of(simt::load(stored + x));
  }
};

template <typename Coins>
struct AcceptKSeqKernel {
  static constexpr const char* kName = "accept_k_seq";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;
  Accept a;
  Coins coins;

  SPECLAB_BOTH static constexpr int facts_at(int vocab) { return LawSpace(vocab).bytes(); }
  SPECLAB_BOTH static constexpr int bytes(int vocab, bool) { return facts_at(vocab) + TreeFacts::kBytes; }
  static int blocks(const Accept&) { return 1; }

  /// Returns the sum of value(x, prob of x in `law`, weight of x in `q`) over all tokens x, in the order of
  /// row_order.h. `q` may be null if value() does not use the weights of q. The law must not be one-hot.
  template <typename Value>
  SPECLAB_DEVICE double sum_over(const LawSpace& space, const LawLeft& law, const float* q,
                                 const Value& value) const {
    const float* drawn = q != nullptr ? q : law.p.weights;
    if (law.stored == nullptr) {
      return sum_row(space, a.vocab,
                     Entries{[&](int x) { return TwoWeights{law.p.load(x), simt::load(drawn + x)}; },
                             [&](int x, const TwoWeights& of) {
                               return value(x, static_cast<double>(of.p) / law.p.sum, of.q);
                             }});
    }
    return sum_row(
        space, a.vocab,
        Entries{[&](int x) { return Weights{simt::load(law.stored + x), simt::load(drawn + x)}; },
                [&](int x, const Weights& of) { return value(x, law.prob_of(of.stored), of.drawn); }});
  }

  /// Finds the test with the smallest rho for a group of `count` children (best_test() on the host). For one
  /// child, GroupTest::rho and share are 1 for every beta, so this function then computes no beta.
  SPECLAB_DEVICE GroupTest best_test(const LawSpace& space, const LawLeft& law, const LawRow& q,
                                     int count) const {
    GroupSearch search(count);
    if (count == 1) search.tell(0);
    while (!search.done()) {
      const double rho = search.rho();
      search.tell(law.p.one_hot >= 0 ? smaller(q.prob(law.p.one_hot), 1 / rho)
                                     : sum_over(space, law, q.weights, [&](int, double prob, float w) {
                                         return smaller(static_cast<double>(w) / q.sum, prob / rho);
                                       }));
    }
    return search.found();
  }

  /// Replaces the weight of each token x by left(x, prob of x, weight in q), unless left() is 0 for all x.
  template <typename Left>
  SPECLAB_DEVICE void subtract(const LawSpace& space, const float* q, const Left& left, LawLeft& law) const {
    if (law.p.one_hot >= 0) return;  // what is left of a one-hot row is the row itself
    double* to = a.residual + (law.stored == a.residual ? a.vocab : 0);
    const double sum = sum_over(space, law, q, [&](int x, double prob, float w) {
      const double of_x = left(x, prob, w);
      simt::store(to + x, of_x);
      return of_x;
    });
    if (!(sum > 0)) return;
    simt::block_sync();
    law.stored = to;
    law.sum = sum;
  }

  /// True if the two rows are equal. Children that were drawn from equal rows belong to one group.
  SPECLAB_DEVICE bool same_row(const LawSpace& space, const LawRow& p, const LawRow& q) const {
    if (p.weights == q.weights) return true;
    if (q.one_hot >= 0 || p.sum != q.sum) return false;
    simt::u64 differs = 0;
    visit_row(
        a.vocab, [&](int x) { return TwoWeights{p.load(x), q.load(x)}; },
        [&](int, const TwoWeights& of) { differs = of.p == of.q ? differs : 1; });
    return block_largest(space.keys(), differs) == 0;
  }
  SPECLAB_DEVICE LawRow drawn_from(const TreeFacts& facts, int child) const {
    return TreeFacts::drawn_from(a, child, facts.token(child));
  }
  /// Returns the size of the group that begins at `child`: the children from `child` on, in draw order, up to
  /// the first one that was not drawn from `q`, the row of `child`.
  SPECLAB_DEVICE int group_size(const LawSpace& space, const TreeFacts& facts, int nodes, int child,
                                const LawRow& q) const {
    int count = 1;
    for (child = facts.next_sibling(child); child < nodes; child = facts.next_sibling(child), ++count) {
      const LawRow other = drawn_from(facts, child);
      if (other.one_hot >= 0 || !same_row(space, q, other)) break;
    }
    return count;
  }

  /// Returns the first child of `node` that has the same token as `child`.
  SPECLAB_DEVICE int first_equal(const TreeFacts& facts, int node, int child) const {
    int equal = facts.first_child(node);
    while (facts.token(equal) != facts.token(child)) equal = facts.next_sibling(equal);
    return equal;
  }

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const TreeFacts facts(facts_at(a.vocab));
    const std::int64_t first = simt::load(a.position) + 1;
    const int nodes = a.nodes_at == nullptr ? a.nodes : simt::load(a.nodes_at);
    facts.fetch(a, nodes);
    const bool writes = simt::thread_index() == 0;
    int node = 0, depth = 0, tested = 0, next = -1, fault = -1, moves = 0;
    bool bonus = false;
    while (fault < 0) {
      const LawRow row = LawRow::of(a.p, a.p_laws, node, a.vocab, a.p_sums);
      const std::int64_t position = first + depth;
      int child = facts.first_child(node), accepted = -1, number = 0;
      if (child == nodes) {
        next = row.sample(space, a.vocab, coins, position, kTargetCoin);
        bonus = true;
        break;
      }
      const auto passes = [&](double probability) {
        if (writes) {
          simt::store(&a.verdict->tested_node[tested], child);
          simt::store(&a.verdict->tested_p[tested], facts.p(child));
          simt::store(&a.verdict->tested_q[tested], facts.q(child));
        }
        ++tested;
        const bool passed =
            coins.bernoulli(space, probability, position, kAcceptCoin, static_cast<simt::u32>(number++));
        if (passed) accepted = child;
        return passed;
      };
      LawLeft law{.p = row};
      while (child < nodes && accepted < 0 && fault < 0) {
        const LawRow q = drawn_from(facts, child);
        const int token = facts.token(child);
        if (q.one_hot >= 0) {
          if (passes(law.prob(token))) break;
          subtract(space, nullptr, [&](int x, double prob, float) { return x == token ? 0.0 : prob; }, law);
          child = facts.next_sibling(child);
          continue;
        }
        const int count = group_size(space, facts, nodes, child, q);
        const GroupTest group = best_test(space, law, q, count);
        for (int i = 0; i < count; ++i, child = facts.next_sibling(child)) {
          const double q_token = facts.q(child);
          if (!(q_token > 0)) fault = child;
          if (fault >= 0 || passes(law.prob(facts.token(child)) / (group.rho * q_token))) break;
        }
        if (accepted >= 0 || fault >= 0) break;
        subtract(
            space, q.weights,
            [&](int, double prob, float w) {
              return group_residual(group, prob, static_cast<double>(w) / q.sum);
            },
            law);
      }
      if (fault >= 0) break;
      if (accepted < 0) {
        next = row.one_hot >= 0 ? row.one_hot : sample(space, law, position);
        break;
      }
      accepted = first_equal(facts, node, accepted);
      if (writes) simt::store(&a.verdict->path[depth], accepted);
      ++depth;
      if (accepted != depth) {
        if (writes) {
          simt::store(&a.verdict->from[moves], accepted);
          simt::store(&a.verdict->to[moves], depth);
        }
        ++moves;
      }
      node = accepted;
    }
    if (!writes) return;
    simt::store(&a.verdict->accepted, depth);
    simt::store(&a.verdict->next, next);
    simt::store(&a.verdict->bonus, bonus ? 1 : 0);
    simt::store(&a.verdict->fault, fault);
    simt::store(&a.verdict->moves, moves);
    simt::store(&a.verdict->tested, tested);
  }

 private:
  struct Weights {
    double stored;
    float drawn;
  };
  SPECLAB_DEVICE static double smaller(double x, double y) { return y < x ? y : x; }
  /// Draws the next token when all children have failed. The weights are probabilities, as on the host.
  SPECLAB_DEVICE int sample(const LawSpace& space, const LawLeft& law, std::int64_t position) const {
    if (law.stored == nullptr) {
      return coins.categorical(space, a.vocab,
                               Entries{[&](int x) { return law.p.load(x); },
                                       [&](int, float w) { return static_cast<double>(w) / law.p.sum; }},
                               position, kResidualCoin, 0);
    }
    return coins.categorical(space, a.vocab,
                             Entries{[&](int x) { return simt::load(law.stored + x); },
                                     [&](int, double w) { return law.prob_of(w); }},
                             position, kResidualCoin, 0);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
