#pragma once

#include "core/backend/cuda/kernels/criterion.h"
#include "core/backend/cuda/kernels/row_pieces.h"

// Verifies a draft on the device. The kernel does what accept() of core/decoding/rules/accept.h does for a
// tree. It serves the rules that walk from node to node, except K-SEQ. If the rows have the same bits as on
// the host, the decisions, coins (random numbers) and tokens are the same, too (law.h). The other rules have
// kernels of their own (accept/). start_accept() (accept/start_accept.h) starts the kernel of a rule.
//
// Each decision depends on the one before it, so the walk through the tree cannot be divided. Before the
// walk, the threads fetch in parallel what the walk needs of each node: links, token, and p and q of the
// token (TreeFacts). So the walk itself waits only for shared memory and for L1, which then holds numbers
// such as the key of the coins. To draw a token from a row of the target, or from such a row without one
// token, the kernel uses the sums of the target's rows (Accept::p_sums) and reads one chunk.
//
// In rejection sampling, the kernel reads whole rows, p and q, only when it rejects a token that was drawn
// from a distribution of the draft. If there is memory through which blocks exchange results
// (Accept::meeting), there is one block per piece of a row (row_pieces.h). All blocks walk up to the first
// rejection and come to the same result. Then each block sums its piece of the residual, and the block that
// finishes last goes on alone. A second rejection in the same step occurs only in trees, and one block then
// reads the rows, with 32 KiB in flight. One block also works alone if the rule's form raises p to a power
// (RatioForm::power) or ignores q, and for all rules of this kernel except kRatio.
//
// For a vocabulary of 128,256 the two rows have 1 MiB, and 32 blocks load all of it at once. The
// predicted time of a rejection is then about 4 us. With one block it would be 8 us at a latency of 0.25 us
// (L2) and 22 us at 0.7 us (memory). All other outcomes take 2 to 3 us by the same prediction.

namespace speclab::cuda {

inline constexpr int kMostNodes = 128;  ///< nodes of a tree: the pending token (root) and drafted tokens

using speclab::AcceptRule, speclab::boosted, speclab::CriterionForm, speclab::GroupSearch, speclab::GroupTest,
    speclab::kFirstCoinOfOrder, speclab::RatioForm, speclab::residual_weight;

/// The result of the verification of a draft.
struct Verdict {
  std::int32_t accepted = 0;           ///< length of `path`
  std::int32_t path[kMostNodes] = {};  ///< [accepted] nodes, from depth 1 on
  std::int32_t next = -1;              ///< bonus or correction
  std::int32_t bonus = 0;              ///< 1: the accepted path ended at a leaf, so `next` is a bonus token
  std::int32_t fault = -1;  ///< a node whose token has probability 0 in the row that it was drawn from (a
                            ///< broken draft); -1: none
  /// Number of moves of cache rows. The moves bring the path right behind the pending token: from slot
  /// C + from[i] to slot C + to[i], in this order, where C is the committed length. Rows that already are in
  /// place are left out.
  std::int32_t moves = 0;
  std::int32_t from[kMostNodes] = {}, to[kMostNodes] = {};
  /// Number of tested nodes. The arrays hold these nodes in order, and p and q of their tokens (q = 1:
  /// one-hot).
  std::int32_t tested = 0;
  std::int32_t tested_node[kMostNodes] = {};
  double tested_p[kMostNodes] = {}, tested_q[kMostNodes] = {};
};

/// Arguments of the kernel that verifies a draft.
struct Accept {
  AcceptRule rule = AcceptRule::kRatio;
  RatioForm form{};
  CriterionForm criterion{};
  int nodes = 0,
      vocab = 0;  ///< nodes: without probes, which come after the candidates (core/decoding/token_tree.h)
  const std::int32_t* nodes_at = nullptr;  ///< not null: the number of nodes in use is read from here
  const std::int32_t* tokens = nullptr;    ///< [nodes], node 0 the pending token
  const std::int32_t* parents = nullptr;   ///< [nodes], parent < node, -1 for node 0
  const float* p = nullptr;        ///< [nodes, vocab] weights of the target's rows; null when all are one-hot
  const Law* p_laws = nullptr;     ///< [nodes]
  const double* p_sums = nullptr;  ///< [nodes, chunks] see Standardise; null: the kernel sums the rows itself
  const float* raw = nullptr;      ///< [nodes, vocab] rows that a criterion looks at; null: p
  const Law* raw_laws = nullptr;   ///< [nodes]
  const std::int32_t* q_rows = nullptr;  ///< [nodes] row of q that the token was drawn from; -1: one-hot
  const float* q = nullptr;              ///< [.., vocab]
  const Law* q_laws = nullptr;
  PhiloxKey key{};
  const PhiloxKey* key_at = nullptr;       ///< see PhiloxCoins
  const std::int64_t* position = nullptr;  ///< position of node 0
  double* residual = nullptr;              ///< scratch of accept_scratch() entries (accept/start_accept.h)
  RowMeeting meeting{};                    ///< for one row; if `arrivals` is null, one block does all work
  Verdict* verdict = nullptr;              ///< out
};

inline namespace SPECLAB_SIDE {

/// The residual distribution for the children that are not yet tested. The host's counterpart is
/// rules::Remainder.
struct Remainder {
  enum class Kind { kRow, kDifference, kWithoutToken, kStored };
  LawRow p;
  int vocab;
  RatioForm f{};
  double* stored;
  Kind kind = Kind::kRow;
  double sum = 1;
  LawRow q{};                         // kDifference, kWithoutToken
  double p_factor = 1, q_factor = 1;  // kDifference
  double unit = 0;                    // kWithoutToken: the weight that stands for probability 1
  bool summed = false;                // LawSpace holds the sums of the chunks of this distribution

  /// Returns the weight of token x, not normalised. `of` holds the weights of x in p and q. Not defined for
  /// kStored.
  SPECLAB_DEVICE double weight_of(int x, const TwoWeights& of) const {
    const auto w = static_cast<double>(of.p);
    if (kind == Kind::kRow) return w;
    if (kind == Kind::kWithoutToken) return x != q.one_hot ? w : positive_part(w - unit);
    return difference_weight(w, p_factor, static_cast<double>(of.q), q_factor);
  }
  /// Returns a function that loads weight_of()'s argument `of`. If weight_of() does not need q, the function
  /// loads p instead of q, so that no load depends on the kind.
  SPECLAB_DEVICE auto loader() const {
    return [mine = p.weights, other = kind == Kind::kDifference ? q.weights : p.weights](int x) {
      return TwoWeights{simt::load(mine + x), simt::load(other + x)};
    };
  }
  SPECLAB_DEVICE double sum_of_weights() const { return kind == Kind::kRow ? p.sum : sum; }
  SPECLAB_DEVICE double prob(int x) const {
    if (p.one_hot >= 0) return p.prob(x);
    return (kind == Kind::kStored ? simt::load(stored + x) : weight_of(x, loader()(x))) / sum_of_weights();
  }

  /// True if subtract() would sum the difference of two rows. It can then use the sums of the chunks.
  SPECLAB_DEVICE bool becomes_difference(const LawRow& drawn_from) const {
    return p.one_hot < 0 && kind == Kind::kRow && f.power == 1 && drawn_from.one_hot < 0;
  }
  /// The first part of subtract(), for Kind::kRow and a form f with power 1. Sets the fields that describe
  /// what is left, but not `sum`.
  SPECLAB_DEVICE void take(const LawRow& drawn_from) {
    const double scale = f.plain_residual ? 1 : f.scale;
    kind = drawn_from.one_hot < 0 ? Kind::kDifference : Kind::kWithoutToken;
    q = drawn_from;
    p_factor = scale / p.sum;
    q_factor = 1 / drawn_from.sum;
    unit = p.sum / scale;
  }

  /// Replaces this distribution d with max(f(d) - q, 0), normalised, where q is `drawn_from`. f is boosted(),
  /// or the identity with plain_residual. If d is one-hot or no mass would be left, d stays as it is.
  /// `of_chunks`: the sums of the chunks of the difference; null: not known.
  SPECLAB_DEVICE void subtract(const LawSpace& space, const LawRow& drawn_from, const double* of_chunks) {
    if (p.one_hot >= 0) return;
    if (kind == Kind::kRow && f.power == 1) {
      take(drawn_from);
      // If a single token loses mass, only the sum of its chunk changes. The other sums are those of p.
      const KnownSums known{.chunks = kind == Kind::kWithoutToken ? p.known.chunks : of_chunks,
                            .changed = q.one_hot};
      sum = sum_row(space, vocab,
                    Entries{loader(), [&](int x, const TwoWeights& of) { return weight_of(x, of); }, known});
      summed = sum > 0;
      if (!summed) kind = Kind::kRow;
      return;
    }
    const float* drawn = drawn_from.one_hot >= 0 ? p.weights : drawn_from.weights;
    const auto left_of = [&](int x, double prob_of_x, float w) {
      const double q_of_x = drawn_from.one_hot >= 0 ? (x == drawn_from.one_hot ? 1 : 0)
                                                    : static_cast<double>(w) / drawn_from.sum;
      return residual_weight(f, prob_of_x, q_of_x);
    };
    const double of_all = sum_of_weights();
    if (kind == Kind::kStored) {
      store_left(
          space,
          Entries{[&](int x) { return StoredWeight{simt::load(stored + x), simt::load(drawn + x)}; },
                  [&](int x, const StoredWeight& of) { return left_of(x, of.stored / of_all, of.drawn); }});
    } else {
      store_left(space,
                 Entries{[&, load = loader()](int x) { return ThreeWeights{load(x), simt::load(drawn + x)}; },
                         [&](int x, const ThreeWeights& of) {
                           return left_of(x, weight_of(x, of.own) / of_all, of.drawn);
                         }});
    }
  }
  template <typename Coins>
  SPECLAB_DEVICE int sample(const LawSpace& space, const Coins& coins, std::int64_t position) const {
    if (kind == Kind::kRow) return p.sample(space, vocab, coins, position, kResidualCoin);
    const KnownSums known{.in_space = summed};
    if (kind == Kind::kStored) {
      return coins.categorical(
          space, vocab,
          Entries{[&](int x) { return simt::load(stored + x); }, [](int, double w) { return w; }, known},
          position, kResidualCoin, 0);
    }
    return coins.categorical(
        space, vocab, Entries{loader(), [&](int x, const TwoWeights& of) { return weight_of(x, of); }, known},
        position, kResidualCoin, 0);
  }

 private:
  struct StoredWeight {
    double stored;
    float drawn;
  };
  struct ThreeWeights {
    TwoWeights own;
    float drawn;
  };
  /// Replaces the distribution with `left`, unless that has no mass.
  template <typename Left>
  SPECLAB_DEVICE void store_left(const LawSpace& space, const Left& left) {
    const double all = sum_row(space, vocab, left);
    summed = false;
    if (!(all > 0)) return;
    // The same thread reads and writes a weight, so the result may overwrite its source.
    visit_row(vocab, left.load,
              [&](int x, const auto& loaded) { simt::store(stored + x, left.value(x, loaded)); });
    simt::block_sync();
    kind = Kind::kStored;
    sum = all;
    summed = true;
  }
};

/// What the walk needs to know of the nodes of a tree, in shared memory.
class TreeFacts {
 public:
  static constexpr int kBytes = kMostNodes * (2 * 8 + 5 * 4);
  /// `begin`: offset in the shared memory, a multiple of 8.
  SPECLAB_DEVICE explicit TreeFacts(int begin) : begin_(begin) {}

  SPECLAB_DEVICE double p(int node) const {
    return p_of()[node];
  }  ///< of the node's token in its parent's row
  SPECLAB_DEVICE double q(int node) const { return q_of()[node]; }  ///< in the row that it was drawn from
  SPECLAB_DEVICE int token(int node) const { return numbers(kToken)[node]; }
  /// first_child() and next_sibling() return the number of nodes if there is no such node.
  SPECLAB_DEVICE int first_child(int node) const { return numbers(kChild)[node]; }
  SPECLAB_DEVICE int next_sibling(int node) const { return numbers(kSibling)[node]; }
  SPECLAB_DEVICE int parent(int node) const { return numbers(kParent)[node]; }  ///< -1 for node 0
  SPECLAB_DEVICE int depth(int node) const {
    int depth = 0;
    SPECLAB_ROLLED
    for (; numbers(kParent)[node] >= 0; node = numbers(kParent)[node]) ++depth;
    return depth;
  }

  /// All threads of a block call it together. It fetches the facts of all nodes, although the walk does not
  /// reach every node.
  SPECLAB_DEVICE void fetch(const Accept& a, int nodes) const {
    SPECLAB_ROLLED
    for (int node = simt::thread_index(); node < nodes; node += simt::block_threads()) {
      const int parent = simt::load(a.parents + node), token = simt::load(a.tokens + node);
      numbers(kParent).set(node, parent);
      numbers(kToken).set(node, token);
      if (parent < 0) continue;
      const LawRow drawn = drawn_from(a, node, token);
      p_of().set(node, LawRow::of(a.p, a.p_laws, parent, a.vocab).prob(token));
      q_of().set(node, drawn.prob(token));
    }
    simt::block_sync();
    SPECLAB_ROLLED
    for (int node = simt::thread_index(); node < nodes; node += simt::block_threads()) {
      const int parent = numbers(kParent)[node];
      int child = nodes, sibling = nodes;
      SPECLAB_ROLLED
      for (int other = nodes - 1; other > node; --other) {
        const int above = numbers(kParent)[other];
        child = above == node ? other : child;
        sibling = above == parent ? other : sibling;
      }
      numbers(kChild).set(node, child);
      numbers(kSibling).set(node, sibling);
    }
    simt::block_sync();
  }

  /// Links the children of a node in a random order (draw_order() in rules_any_order.cpp). All threads of a
  /// block call it together. The links of the other nodes stay as they are.
  template <typename Coins>
  SPECLAB_DEVICE void shuffle_children(const LawSpace& space, int nodes, int node, const Coins& coins,
                                       std::int64_t position) const {
    const bool writes = simt::thread_index() == 0;
    const auto order = numbers(kOrder);
    int count = 0;
    for (int child = first_child(node); child < nodes; child = next_sibling(child), ++count) {
      if (writes) order.set(count, child);
    }
    const Entries equal{[](int) { return 0.0f; }, [](int, float) { return 1.0; }};
    for (int left = count; left > 1; --left) {
      const int chosen =
          coins.categorical(space, left, equal, position, static_cast<simt::u32>(Purpose::simulate),
                            kFirstCoinOfOrder + static_cast<simt::u32>(left));
      if (!writes) continue;
      const int last = order[left - 1];
      order.set(left - 1, order[chosen]);
      order.set(chosen, last);
    }
    simt::block_sync();
    if (writes && count > 0) {
      numbers(kChild).set(node, order[0]);
      for (int i = 0; i < count; ++i)
        numbers(kSibling).set(order[i], i + 1 < count ? static_cast<int>(order[i + 1]) : nodes);
    }
    simt::block_sync();
  }

  /// Returns the row that a node's token was drawn from, or a one-hot row if the token was not drawn.
  SPECLAB_DEVICE static LawRow drawn_from(const Accept& a, int node, int token) {
    const int row = simt::load(a.q_rows + node);
    return row < 0 ? LawRow{.one_hot = token} : LawRow::of(a.q, a.q_laws, row, a.vocab);
  }

 private:
  enum { kToken, kParent, kChild, kSibling, kOrder };
  SPECLAB_DEVICE simt::Shared<double> p_of() const { return simt::shared<double>(begin_, kMostNodes); }
  SPECLAB_DEVICE simt::Shared<double> q_of() const {
    return simt::shared<double>(begin_ + 8 * kMostNodes, kMostNodes);
  }
  SPECLAB_DEVICE simt::Shared<std::int32_t> numbers(int which) const {
    return simt::shared<std::int32_t>(begin_ + (16 + 4 * which) * kMostNodes, kMostNodes);
  }
  int begin_;
};

template <typename Coins>
struct AcceptKernel {
  static constexpr const char* kName = "accept";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;  // few blocks: run_alone() in core/backend/cuda/launch/run_on_device.h
  Accept a;
  Coins coins;

  /// Returns the token that the target itself gives. Match rules (kExact, ...) compare drafted tokens with
  /// it. It is also the bonus token of every rule except typical acceptance (CriterionForm::typical).
  SPECLAB_DEVICE int target_token(const LawSpace& space, const LawRow& row, std::int64_t position) const {
    if (a.rule == AcceptRule::kExact) return row.argmax(space, a.vocab);
    if (a.rule == AcceptRule::kCoupled) return row.sample_coupled(space, a.vocab, coins, position);
    return row.sample(space, a.vocab, coins, position, kTargetCoin);
  }

  /// Returns the tokens that the criterion accepts as children of a node of this depth. `row`: p of the node.
  SPECLAB_DEVICE AcceptedSet accepted_at(const LawSpace& space, const LawRow& row, int node,
                                         int depth) const {
    return AcceptedSet(space, at_depth(a.criterion, depth), row,
                       a.raw != nullptr ? LawRow::of(a.raw, a.raw_laws, node, a.vocab) : row, a.vocab);
  }
  /// Returns the token that a criterion rule (CriterionForm) emits after the accepted tokens.
  SPECLAB_DEVICE int token_within(const LawSpace& space, const LawRow& row, const AcceptedSet& set,
                                  std::int64_t position) const {
    if (!a.criterion.typical || row.one_hot >= 0) return target_token(space, row, position);
    const float* seen = set.seen.one_hot >= 0 ? row.weights : set.seen.weights;
    return coins.categorical(
        space, a.vocab,
        Entries{[&](int x) { return TwoWeights{row.load(x), simt::load(seen + x)}; },
                [&](int x, const TwoWeights& of) {
                  return set.meets(x, set.weight_of(x, of.q)) ? static_cast<double>(of.p) / row.sum : 0.0;
                }},
        position, kTargetCoin, 0);
  }
  /// Returns the token that follows a rejection by an envelope rule (criterion.h). `inverse` is 1 / M, with
  /// M = max p / q (the envelope M q >= p).
  SPECLAB_DEVICE int token_redrawn(const LawSpace& space, const LawRow& row, const LawRow& q, double inverse,
                                   int children, std::int64_t position) const {
    const int redraws =
        a.rule == AcceptRule::kEnvelopeAgain && inverse > 0 && row.one_hot < 0 ? kMostRedraws : 0;
    for (int i = 0; i < redraws; ++i) {
      const int token =
          q.sample(space, a.vocab, coins, position, kResidualCoin, static_cast<simt::u32>(1 + i));
      if (coins.bernoulli(space, under_envelope(row, q, token, inverse), position, kAcceptCoin,
                          static_cast<simt::u32>(children + i)))
        return token;
    }
    return row.sample(space, a.vocab, coins, position, kResidualCoin);
  }

  /// The shared memory of a block: LawSpace, TreeFacts, and a piece of a residual if there are several
  /// blocks.
  SPECLAB_BOTH static constexpr int facts_at(int vocab) { return LawSpace(vocab).bytes(); }
  SPECLAB_BOTH static constexpr int bytes(int vocab, bool several) {
    return facts_at(vocab) + TreeFacts::kBytes + (several ? 8 * PieceOrder::kEntries : 0);
  }

  /// Returns how many blocks work together: several if blocks can exchange results, a row has several pieces,
  /// and a rejection may need the difference of two rows.
  static int blocks(const Accept& a) {
    const bool several = a.meeting.arrivals != nullptr && a.rule == AcceptRule::kRatio && a.form.power == 1 &&
                         !a.form.ignore_q && a.p != nullptr && a.q != nullptr && a.vocab > kRowPiece;
    return several ? row_pieces(a.vocab) : 1;
  }

  /// Writes the sums of the chunks of this block's piece of the difference to a.residual.
  SPECLAB_DEVICE void sum_piece(const LawSpace& space, const Remainder& difference) const {
    const int piece = simt::block_x(), begin = piece * kRowPiece, end = simt::min(begin + kRowPiece, a.vocab);
    const auto values = simt::shared<double>(facts_at(a.vocab) + TreeFacts::kBytes, PieceOrder::kEntries);
    visit_entries(begin + simt::thread_index(), end, simt::block_threads(), difference.loader(),
                  [&](int x, const TwoWeights& of) {
                    values.set(PieceOrder::place(x - begin), difference.weight_of(x, of));
                  });
    SPECLAB_ROLLED
    for (int x = end + simt::thread_index(); x < begin + kRowPiece; x += simt::block_threads())
      values.set(PieceOrder::place(x - begin), 0.0);
    PieceOrder::sum_chunks(values, space.lanes(), piece, chunks_of(a.vocab), a.residual);
  }

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const TreeFacts facts(facts_at(a.vocab));
    const std::int64_t first = simt::load(a.position) + 1;
    const int nodes = a.nodes_at == nullptr ? a.nodes : simt::load(a.nodes_at);
    facts.fetch(a, nodes);
    bool several = simt::grid_x() > 1;  // all blocks still go the same way
    bool writes = simt::block_x() == 0 && simt::thread_index() == 0;
    int node = 0, depth = 0, tested = 0, next = -1, fault = -1, moves = 0;
    bool bonus = false;
    const auto record = [&](int child) {
      if (writes) {
        simt::store(&a.verdict->tested_node[tested], child);
        simt::store(&a.verdict->tested_p[tested], facts.p(child));
        simt::store(&a.verdict->tested_q[tested], facts.q(child));
      }
      ++tested;
    };
    for (;;) {
      const LawRow row = LawRow::of(a.p, a.p_laws, node, a.vocab, a.p_sums);
      const std::int64_t position = first + depth;
      int child = facts.first_child(node), accepted = -1;
      if (child == nodes) {
        if (several && simt::block_x() != 0) return;
        next = a.rule == AcceptRule::kCriterion
                   ? token_within(space, row, accepted_at(space, row, node, depth), position)
                   : target_token(space, row, position);
        bonus = true;
        break;
      }
      if (a.rule == AcceptRule::kCriterion) {
        const AcceptedSet set = accepted_at(space, row, node, depth);
        for (; child < nodes && accepted < 0; child = facts.next_sibling(child)) {
          record(child);
          if (set.accepts(space, facts.token(child))) accepted = child;
        }
        if (accepted < 0) next = token_within(space, row, set, position);
      } else if (a.rule == AcceptRule::kEnvelope || a.rule == AcceptRule::kEnvelopeAgain) {
        LawRow q;
        double inverse = 0;
        int children = 0;
        for (; child < nodes && accepted < 0; child = facts.next_sibling(child), ++children) {
          const int token = facts.token(child);
          record(child);
          q = TreeFacts::drawn_from(a, child, token);
          inverse = inverse_envelope(space, row, q, a.vocab);
          if (coins.bernoulli(space, under_envelope(row, q, token, inverse), position, kAcceptCoin,
                              static_cast<simt::u32>(children)))
            accepted = child;
        }
        if (accepted < 0) next = token_redrawn(space, row, q, inverse, children, position);
      } else if (a.rule != AcceptRule::kRatio) {
        const int chosen = target_token(space, row, position);
        for (; child < nodes && accepted < 0; child = facts.next_sibling(child)) {
          record(child);
          if (facts.token(child) == chosen) accepted = child;
        }
        if (accepted < 0) next = chosen;
      } else {
        if (a.form.any_order) {
          facts.shuffle_children(space, nodes, node, coins, position);
          child = facts.first_child(node);
        }
        Remainder remainder{.p = row, .vocab = a.vocab, .f = a.form, .stored = a.residual};
        for (int i = 0; child < nodes; child = facts.next_sibling(child), ++i) {
          const int token = facts.token(child);
          record(child);
          const double q_token = a.form.ignore_q ? 1 : facts.q(child);
          if (!(q_token > 0)) {
            fault = child;
            break;
          }
          const double p_token = i == 0 ? facts.p(child) : remainder.prob(token);
          if (coins.bernoulli(space, boosted(a.form, p_token) / q_token, position, kAcceptCoin,
                              static_cast<simt::u32>(i))) {
            accepted = child;
            break;
          }
          const LawRow q =
              a.form.ignore_q ? LawRow{.one_hot = token} : TreeFacts::drawn_from(a, child, token);
          const double* of_chunks = nullptr;
          if (several) {  // one block goes on: the last one if all have work, otherwise the first one
            several = false;
            if (remainder.becomes_difference(q)) {
              Remainder difference = remainder;
              difference.take(q);
              sum_piece(space, difference);
              if (!last_of_row(space.told(), a.meeting.arrivals)) return;
              writes = simt::thread_index() == 0;
              of_chunks = a.residual;
            } else if (simt::block_x() != 0) {
              return;
            }
          }
          remainder.subtract(space, q, of_chunks);
        }
        if (accepted < 0) {
          if (several && simt::block_x() != 0) return;
          next = remainder.sample(space, coins, position);
        }
      }
      if (accepted < 0) break;
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
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Accept& a, const Visit& visit) {
  using Kernel = AcceptKernel<PhiloxCoins>;
  const int blocks = Kernel::blocks(a);
  visit(Kernel{a, {a.key, a.key_at}}, LaunchShape{.grid_x = blocks,
                                                  .threads = law_threads(a.vocab),
                                                  .shared_bytes = Kernel::bytes(a.vocab, blocks > 1)});
}

}  // namespace speclab::cuda
