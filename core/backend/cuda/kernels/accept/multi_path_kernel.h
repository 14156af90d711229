#pragma once

#include <cstddef>

#include "core/backend/cuda/kernels/accept/write_verdict.h"
#include "core/backend/cuda/kernels/acceptance_kernel.h"
#include "core/backend/path_choice.h"

// Verifies a draft by multi-path block verification (AcceptRule::kMultiPath). The host's side is
// core/decoding/rules/rules_multi_path.cpp, which explains the choice of a path, lambda, q' and rho. The bits
// on the device are the same. The host has checked that the draft consists of independent paths.
//
// One block chooses a path from the pending token (the root) down, then judges it from its end up. A position
// where several paths remain and q is not one-hot needs one pass over p and q, in which the threads add the
// masses of the classes of tokens (path_choice.h), and about 33 passes over the gains and rooms of the
// classes, 32 KiB. Other positions need no pass for the choice. To judge the path, the block makes one pass
// over p and q for each token of the path that is not accepted. A pass over the two rows, 1 MiB for a
// vocabulary of 128,256, takes the block about 8 us or more (predicted). The pass for the classes takes
// longer if many tokens share a class, because the threads then add to one address.

namespace speclab::cuda {

using speclab::class_mass, speclab::factor_at, speclab::kFirstCoinOfChoice, speclab::kRatioClasses,
    speclab::ratio_class, speclab::ratio_class_of, speclab::RatioClass, speclab::ShareSearch,
    speclab::slope_of;

/// Arguments of the kernel. `of.residual` has choice_scratch() entries.
struct AcceptMultiPath {
  Accept of;
};

/// Number of doubles that the choices need. Four tables of the classes are used at each position: masses of q
/// and of p, gains, and rooms. The table of factors is kept for each position where several paths remain.
inline std::size_t choice_scratch(int nodes) {
  return static_cast<std::size_t>(4 + (nodes - 1) / 2) * static_cast<std::size_t>(kRatioClasses);
}

inline namespace SPECLAB_SIDE {

/// The chosen path and the paths that remain, in shared memory.
class ChosenPath {
 public:
  static constexpr int kBytes = kMostNodes * (8 + 6 * 4);
  /// A token of the chosen path.
  struct Level {
    int row = 0;     ///< the node whose row is p
    int first = 0;   ///< the node of the first path that remains; it was drawn from q
    int node = 0;    ///< the node of the chosen token
    int table = -1;  ///< the token's table of factors; -1: none, q' is q
    double rho = 1;  ///< of the path to this token
  };
  /// `begin`: offset in the shared memory, a multiple of 8.
  SPECLAB_DEVICE explicit ChosenPath(int begin) : begin_(begin) {}

  SPECLAB_DEVICE Level get(int depth) const {
    return {numbers(0)[depth], numbers(1)[depth], numbers(2)[depth], numbers(3)[depth], rhos()[depth]};
  }
  /// Returns the node at this depth of the i-th path that remains.
  SPECLAB_DEVICE int remaining(int depth, int i) const { return numbers(4 + depth % 2)[i]; }

  // All threads of a block call the functions below together.

  SPECLAB_DEVICE void set(int depth, const Level& level) const {
    if (simt::thread_index() == 0) {
      numbers(0).set(depth, level.row);
      numbers(1).set(depth, level.first);
      numbers(2).set(depth, level.node);
      numbers(3).set(depth, level.table);
      rhos().set(depth, level.rho);
    }
    simt::block_sync();
  }
  /// Lets the paths begin at the children of the pending token. Returns their number.
  SPECLAB_DEVICE int begin(const TreeFacts& facts, int nodes) const {
    int paths = 0;
    for (int child = facts.first_child(0); child < nodes; child = facts.next_sibling(child), ++paths) {
      if (simt::thread_index() == 0) numbers(4).set(paths, child);
    }
    simt::block_sync();
    return paths;
  }
  /// Of the `paths` paths, keeps those that have `token` at `depth` and a node at depth + 1. Stores their
  /// nodes at depth + 1 and returns their number.
  SPECLAB_DEVICE int keep(const TreeFacts& facts, int nodes, int depth, int paths, int token) const {
    int kept = 0;
    for (int i = 0; i < paths; ++i) {
      const int node = remaining(depth, i), child = facts.first_child(node);
      if (facts.token(node) != token || child == nodes) continue;
      if (simt::thread_index() == 0) numbers(4 + (depth + 1) % 2).set(kept, child);
      ++kept;
    }
    simt::block_sync();
    return kept;
  }
  /// The chosen nodes may lie on several paths that have equal tokens. Replaces them by the nodes of one
  /// path, the path to the last chosen node.
  SPECLAB_DEVICE void join(const TreeFacts& facts, int length) const {
    if (simt::thread_index() == 0) {
      for (int depth = length - 1; depth > 0; --depth)
        numbers(2).set(depth - 1, facts.parent(numbers(2)[depth]));
    }
    simt::block_sync();
  }

 private:
  SPECLAB_DEVICE simt::Shared<double> rhos() const { return simt::shared<double>(begin_, kMostNodes); }
  SPECLAB_DEVICE simt::Shared<std::int32_t> numbers(int which) const {
    return simt::shared<std::int32_t>(begin_ + (8 + 4 * which) * kMostNodes, kMostNodes);
  }
  int begin_;
};

/// The rows p and q of a token of the chosen path, and the distribution q' of the token.
struct ChoiceLaw {
  LawRow p, q;
  const double* factors = nullptr;  ///< [kRatioClasses] q'/q; null: q' is q

  /// Returns a function that loads the weights of a token in p and q for the functions below. A one-hot row
  /// has no weights. In its place the function loads the other row.
  SPECLAB_DEVICE auto loader() const {
    return [mine = p.one_hot < 0 ? p.weights : q.weights, drawn = q.one_hot < 0 ? q.weights : p.weights](
               int x) { return TwoWeights{simt::load(mine + x), simt::load(drawn + x)}; };
  }
  SPECLAB_DEVICE double p_of(int x, const TwoWeights& of) const {
    return p.one_hot < 0 ? static_cast<double>(of.p) / p.sum : x == p.one_hot ? 1 : 0;
  }
  SPECLAB_DEVICE double q_of(int x, const TwoWeights& of) const {
    return q.one_hot < 0 ? static_cast<double>(of.q) / q.sum : x == q.one_hot ? 1 : 0;
  }
  /// q'(x) of a token with the probabilities p_x and q_x.
  SPECLAB_DEVICE double chosen(double p_x, double q_x) const {
    if (factors == nullptr || !(q_x > 0)) return q_x;
    return q_x * simt::load(factors + ratio_class(p_x, q_x));
  }
  /// The positive part of rho p(x) - q'(x), for a token with these probabilities.
  SPECLAB_DEVICE double left(double rho, double p_x, double q_x) const {
    return path_residual(rho, p_x, chosen(p_x, q_x));
  }
  /// The residual (rho p - q')+. p is not one-hot.
  SPECLAB_DEVICE auto residual(double rho, const KnownSums& known) const {
    return Entries{loader(),
                   [law = *this, rho](int x, const TwoWeights& of) {
                     return law.left(rho, law.p_of(x, of), law.q_of(x, of));
                   },
                   known};
  }
};

template <typename Coins>
struct AcceptMultiPathKernel {
  static constexpr const char* kName = "accept_multi_path";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;
  Accept a;
  Coins coins;

  /// The shared memory of the block holds LawSpace, TreeFacts and ChosenPath. LawSpace has room for sums over
  /// a row and over the classes.
  SPECLAB_BOTH static constexpr int widest(int vocab) {
    return vocab > kRatioClasses ? vocab : kRatioClasses;
  }
  SPECLAB_BOTH static constexpr int facts_at(int vocab) { return LawSpace(widest(vocab)).bytes(); }
  SPECLAB_BOTH static constexpr int path_at(int vocab) { return facts_at(vocab) + TreeFacts::kBytes; }
  SPECLAB_BOTH static constexpr int bytes(int vocab, bool) { return path_at(vocab) + ChosenPath::kBytes; }
  static int blocks(const Accept&) { return 1; }

  /// Returns table `number` of the scratch memory. 0: masses of q; 1: masses of p; 2: gains; 3: rooms; from 4
  /// on: factors.
  SPECLAB_DEVICE double* table_at(int number) const {
    return a.residual + static_cast<std::size_t>(number) * static_cast<std::size_t>(kRatioClasses);
  }
  SPECLAB_DEVICE ChoiceLaw law_of(const TreeFacts& facts, const ChosenPath::Level& level) const {
    return {.p = LawRow::of(a.p, a.p_laws, level.row, a.vocab, a.p_sums),
            .q = TreeFacts::drawn_from(a, level.first, facts.token(level.first)),
            .factors = level.table < 0 ? nullptr : table_at(4 + level.table)};
  }

  /// Each thread passes a number `own`. Returns the sum of the numbers of the threads before this one. Sets
  /// `all` to the sum of all numbers.
  SPECLAB_DEVICE static simt::u64 sum_before(const LawSpace& space, simt::u64 own, simt::u64& all) {
    simt::u64 up_to = own;  // sum over the lanes of this warp up to this lane
    for (int step = 1; step < simt::kWarp; step *= 2) {
      const simt::u64 other = simt::shuffle(up_to, simt::max(simt::lane() - step, 0));
      up_to += simt::lane() >= step ? other : 0;
    }
    const auto of_warps = space.keys();
    simt::block_sync();
    if (simt::lane() == simt::kWarp - 1) of_warps.set(simt::warp_index(), up_to);
    simt::block_sync();
    simt::u64 before = up_to - own;
    all = 0;
    for (int warp = 0; warp < simt::block_threads() / simt::kWarp; ++warp) {
      before += warp < simt::warp_index() ? of_warps[warp] : 0;
      all += of_warps[warp];
    }
    return before;
  }

  /// Writes the factors of a choice among `paths` draws to `factors` and returns lambda. q is not one-hot.
  SPECLAB_DEVICE double choose(const LawSpace& space, const ChoiceLaw& law, double rho, int paths,
                               double* factors) const {
    auto* const q_masses = reinterpret_cast<simt::u64*>(table_at(0));
    auto* const p_masses = reinterpret_cast<simt::u64*>(table_at(1));
    double *const gains = table_at(2), *const rooms = table_at(3);
    SPECLAB_ROLLED
    for (int c = simt::thread_index(); c < kRatioClasses; c += simt::block_threads()) {
      simt::store(q_masses + c, simt::u64{0});
      simt::store(p_masses + c, simt::u64{0});
    }
    simt::block_sync();
    visit_row(a.vocab, law.loader(), [&](int x, const TwoWeights& of) {
      const double p_x = law.p_of(x, of), q_x = law.q_of(x, of);
      if (!(q_x > 0)) return;
      const int c = ratio_class(p_x, q_x);
      simt::atomic_add(q_masses + c, simt::u64{class_mass(q_x)});
      simt::atomic_add(p_masses + c, simt::u64{class_mass(p_x)});
    });
    simt::block_sync();
    // Each thread has a range of consecutive classes.
    const int each = (kRatioClasses + simt::block_threads() - 1) / simt::block_threads(),
              begin = simt::min(simt::thread_index() * each, kRatioClasses),
              end = simt::min(begin + each, kRatioClasses);
    simt::u64 own = 0, all = 0;
    SPECLAB_ROLLED
    for (int c = begin; c < end; ++c) own += simt::load(q_masses + c);
    simt::u64 before = sum_before(space, own, all);
    SPECLAB_ROLLED
    for (int c = begin; c < end; ++c) {
      const simt::u64 mass = simt::load(q_masses + c);
      const RatioClass found = ratio_class_of(before, mass, simt::load(p_masses + c), all, paths, rho);
      simt::store(factors + c, found.factor);
      simt::store(gains + c, found.gain);
      simt::store(rooms + c, found.room);
      before += mass;
    }
    ShareSearch search;
    while (!search.done()) {
      const double share = search.share();
      search.tell(
          sum_row(space, kRatioClasses,
                  Entries{[&](int c) { return GainAndRoom{simt::load(gains + c), simt::load(rooms + c)}; },
                          [&](int, const GainAndRoom& of) { return slope_of(of.gain, of.room, share); }}));
    }
    const double share = search.found();
    SPECLAB_ROLLED
    for (int c = begin; c < end; ++c) simt::store(factors + c, factor_at(simt::load(factors + c), share));
    simt::block_sync();
    return share;
  }

  /// What choose_path() found.
  struct Chosen {
    int length = 0;     ///< tokens of the path
    int end = 0;        ///< its last node
    bool valid = true;  ///< false: `end` has an invalid row (Law::invalid)
    int fault = -1;     ///< the chosen child of `end` if it is a Verdict::fault; -1: no fault
  };
  SPECLAB_DEVICE Chosen choose_path(const LawSpace& space, const TreeFacts& facts, const ChosenPath& path,
                                    int nodes, std::int64_t position) const {
    Chosen out;
    int paths = path.begin(facts, nodes), tables = 0;
    double rho = 1;
    while (paths > 0) {
      out.valid = simt::load(&a.p_laws[out.end].invalid) < 0;
      if (!out.valid) break;
      const int first = path.remaining(out.length, 0);
      ChosenPath::Level level{.row = out.end, .first = first, .node = first};
      ChoiceLaw law = law_of(facts, level);
      double share = 0;
      if (paths > 1 && law.q.one_hot < 0) {
        share = choose(space, law, rho, paths, table_at(4 + tables));
        if (share > 0) level.table = tables++;
        law = law_of(facts, level);
      }
      if (coins.bernoulli(space, share, position, kAcceptCoin,
                          kFirstCoinOfChoice + static_cast<simt::u32>(out.end))) {
        int best = -1;
        for (int i = 0; i < paths; ++i) {
          const int node = path.remaining(out.length, i);
          const double q_token = facts.q(node);
          const int found = q_token > 0 ? ratio_class(law.p.prob(facts.token(node)), q_token) : 0;
          if (found <= best) continue;
          best = found;
          level.node = node;
        }
      }
      const int token = facts.token(level.node);
      const double p_token = law.p.prob(token), q_token = facts.q(level.node);
      if (!(q_token > 0)) {
        out.fault = level.node;
        break;
      }
      rho = rho_of_child(rho, p_token, law.chosen(p_token, q_token));
      level.rho = rho;
      path.set(out.length, level);
      paths = path.keep(facts, nodes, out.length, paths, token);
      out.end = level.node;
      ++out.length;
    }
    path.join(facts, out.length);
    return out;
  }

  /// Returns the sum of (rho p - q')+. Unless p is one-hot, leaves the sums of the chunks in LawSpace.
  SPECLAB_DEVICE double sum_left(const LawSpace& space, const ChoiceLaw& law, double rho) const {
    if (law.p.one_hot >= 0) return law.left(rho, 1, law.q.prob(law.p.one_hot));
    return sum_row(space, a.vocab, law.residual(rho, {}));
  }

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(widest(a.vocab));
    const TreeFacts facts(facts_at(a.vocab));
    const ChosenPath path(path_at(a.vocab));
    const std::int64_t position = simt::load(a.position);
    const int nodes = a.nodes_at == nullptr ? a.nodes : simt::load(a.nodes_at);
    facts.fetch(a, nodes);
    const Chosen chosen = choose_path(space, facts, path, nodes, position);
    // The path to an invalid row becomes the accepted path, so that the kernel Settle finds the row.
    int kept = chosen.length, last = chosen.end, next = 0;
    if (chosen.valid && chosen.fault < 0) {
      double rho = 1, sum = 0;
      for (; kept > 0; --kept) {
        const ChosenPath::Level level = path.get(kept - 1);
        rho = level.rho;
        double pass = rho;
        if (kept < chosen.length) {
          sum = sum_left(space, law_of(facts, path.get(kept)), rho);
          pass = rho_after_failure(rho, sum);
        }
        if (coins.bernoulli(space, pass, position, kAcceptCoin, static_cast<simt::u32>(level.node))) break;
      }
      last = kept > 0 ? path.get(kept - 1).node : 0;
      if (kept == chosen.length) {
        const LawRow row = LawRow::of(a.p, a.p_laws, last, a.vocab, a.p_sums);
        next = row.sample(space, a.vocab, coins, position + kept + 1, kTargetCoin);
      } else {
        const ChoiceLaw failed = law_of(facts, path.get(kept));
        if (kept == 0) {
          rho = 1;
          sum = sum_left(space, failed, rho);
        }
        next = correction(space, failed, rho, sum, position, static_cast<simt::u32>(last));
      }
    }
    if (simt::thread_index() != 0) return;
    write_path(a.verdict, facts, nodes, last, next, chosen.fault);
    const int tested = simt::min(kept + 1, chosen.length);
    for (int i = 0; i < tested; ++i) {
      const ChosenPath::Level level = path.get(i);
      const LawRow row = LawRow::of(a.p, a.p_laws, level.row, a.vocab);
      write_test(a.verdict, i, level.node, row.prob(facts.token(level.node)), facts.q(level.node));
    }
    simt::store(&a.verdict->tested, tested);
  }

 private:
  struct GainAndRoom {
    double gain, room;
  };

  /// Draws the token after the last accepted one. LawSpace holds the sums of the chunks of the residual.
  SPECLAB_DEVICE int correction(const LawSpace& space, const ChoiceLaw& law, double rho, double sum,
                                std::int64_t position, simt::u32 last) const {
    if (law.p.one_hot >= 0) return law.p.one_hot;
    if (!(sum > 0)) return law.p.sample(space, a.vocab, coins, position, kResidualCoin, last);
    return coins.categorical(space, a.vocab, law.residual(rho, {.in_space = true}), position, kResidualCoin,
                             last);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
