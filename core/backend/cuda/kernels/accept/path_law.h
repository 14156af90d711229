#pragma once

#include "core/backend/cuda/kernels/acceptance_kernel.h"

// What the walk over whole paths (paths_kernel.h) knows of a node: rho, and the law (distribution) R that is
// left after the children that failed. core/decoding/rules/rules_paths.cpp explains rho, R, S and the
// notation (...)+. The host keeps the same facts in PathNode of that file.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// What the walk knows of the nodes of the current path, in shared memory.
class PathStates {
 public:
  static constexpr int kBytes = kMostNodes * (3 * 8 + 3 * 4);
  struct State {
    double rho = 1;
    double before = 1;  ///< rho before the first child was removed
    double sum = 1;     ///< S of the last removal
    int removed = -1;   ///< the first child that was removed; -1: R is the target's row
    int slot = -1;      ///< where R is stored; -1: nowhere
    int ahead = -1;     ///< level on the first path, if S was computed before the walk; else -1
  };
  /// `begin`: offset in the shared memory, a multiple of 8.
  SPECLAB_DEVICE explicit PathStates(int begin) : begin_(begin) {}

  SPECLAB_DEVICE int slot(int node) const { return numbers(1)[node]; }
  SPECLAB_DEVICE State get(int node) const {
    return {reals(0)[node],   reals(1)[node],   reals(2)[node],
            numbers(0)[node], numbers(1)[node], numbers(2)[node]};
  }
  /// All threads of a block call it together.
  SPECLAB_DEVICE void set(int node, const State& state) const {
    simt::block_sync();
    if (simt::thread_index() == 0) {
      reals(0).set(node, state.rho);
      reals(1).set(node, state.before);
      reals(2).set(node, state.sum);
      numbers(0).set(node, state.removed);
      numbers(1).set(node, state.slot);
      numbers(2).set(node, state.ahead);
    }
    simt::block_sync();
  }

 private:
  SPECLAB_DEVICE simt::Shared<double> reals(int which) const {
    return simt::shared<double>(begin_ + 8 * which * kMostNodes, kMostNodes);
  }
  SPECLAB_DEVICE simt::Shared<std::int32_t> numbers(int which) const {
    return simt::shared<std::int32_t>(begin_ + (24 + 4 * which) * kMostNodes, kMostNodes);
  }
  int begin_;
};

/// The law R of a node.
struct PathLaw {
  enum class Kind { kRow, kDifference, kStored };
  LawRow p;
  Kind kind = Kind::kRow;
  double rho = 1;                     // of the node, now
  double sum = 1;                     // of the weights, unless kRow
  LawRow q{};                         // kDifference: the row of the removed child
  double before = 1;                  // kDifference: rho before this child was removed
  double p_factor = 1, q_factor = 1;  // kDifference
  const double* stored = nullptr;     // kStored

  /// Sets this law to (rho p - q)+, where rho is `rho_before` and q is `drawn_from`. Does not set `sum`.
  SPECLAB_DEVICE void take(double rho_before, const LawRow& drawn_from) {
    kind = Kind::kDifference;
    q = drawn_from;
    before = rho_before;
    p_factor = rho_before / p.sum;
    q_factor = 1 / drawn_from.sum;
  }
  /// Returns the weight of token x in a kDifference. `of` holds the weights of x in p and q.
  SPECLAB_DEVICE double weight_of(int x, const TwoWeights& of) const {
    const auto w = static_cast<double>(of.p);
    return q.one_hot < 0 ? difference_weight(w, p_factor, static_cast<double>(of.q), q_factor)
                         : path_residual(before, w / p.sum, x == q.one_hot ? 1 : 0);
  }
  /// Returns a function that loads weight_of()'s argument `of`. If q is one-hot, it loads p instead of q.
  SPECLAB_DEVICE auto loader() const {
    return [mine = p.weights, other = q.one_hot < 0 ? q.weights : p.weights](int x) {
      return TwoWeights{simt::load(mine + x), simt::load(other + x)};
    };
  }
  SPECLAB_DEVICE double prob(int x) const {
    if (p.one_hot >= 0 || kind == Kind::kRow) return p.prob(x);
    return (kind == Kind::kStored ? simt::load(stored + x) : weight_of(x, loader()(x))) / sum;
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
