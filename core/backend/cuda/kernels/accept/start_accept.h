#pragma once

#include <cstddef>

#include "core/backend/cuda/kernels/accept/k_seq_kernel.h"
#include "core/backend/cuda/kernels/accept/longest_kernel.h"
#include "core/backend/cuda/kernels/accept/multi_path_kernel.h"
#include "core/backend/cuda/kernels/accept/paths_kernel.h"
#include "core/backend/cuda/kernels/acceptance_kernel.h"

// Chooses the kernel that verifies a draft. Rules that walk from node to node and keep little data share one
// kernel (AcceptKernel). Each other rule has a kernel of its own, so that it costs the common rules no
// registers and no code.

namespace speclab::cuda {

/// Calls start(name, arguments) for the kernel of the rule.
template <typename Start>
void start_accept(const Accept& a, const Start& start) {
  if (a.rule == AcceptRule::kPaths) start("accept_paths", AcceptPaths{a});
  else if (a.rule == AcceptRule::kLongest) start("accept_longest", AcceptLongest{a});
  else if (a.rule == AcceptRule::kKSeq) start("accept_k_seq", AcceptKSeq{a});
  else if (a.rule == AcceptRule::kMultiPath) start("accept_multi_path", AcceptMultiPath{a});
  else start("accept", a);
}

/// Number of doubles that Accept::residual needs. greedy: all rows of the target are one-hot.
inline std::size_t accept_scratch(AcceptRule rule, int nodes, int vocab, bool greedy) {
  const auto size = static_cast<std::size_t>(vocab);
  if (rule == AcceptRule::kLongest) return static_cast<std::size_t>(nodes);
  if (rule == AcceptRule::kMultiPath) return choice_scratch(nodes);
  if (greedy) return 0;
  if (rule == AcceptRule::kKSeq) return 2 * size;
  if (rule != AcceptRule::kPaths) return size;
  return static_cast<std::size_t>(levels_ahead(nodes)) * static_cast<std::size_t>(chunks_of(vocab)) +
         static_cast<std::size_t>(laws_stored(nodes)) * size;
}

/// Calls visit() with the kernel and the shape of its launch, for the kernels other than AcceptKernel.
template <typename Kernel, typename Visit>
void with_accept_kernel(const Kernel& kernel, const Visit& visit) {
  const int blocks = Kernel::blocks(kernel.a), vocab = kernel.a.vocab;
  visit(kernel, LaunchShape{.grid_x = blocks,
                            .threads = law_threads(vocab),
                            .shared_bytes = Kernel::bytes(vocab, blocks > 1)});
}
template <typename Visit>
void with_kernel(const AcceptPaths& a, const Visit& visit) {
  with_accept_kernel(AcceptPathsKernel<PhiloxCoins>{a.of, {a.of.key, a.of.key_at}}, visit);
}
template <typename Visit>
void with_kernel(const AcceptLongest& a, const Visit& visit) {
  with_accept_kernel(AcceptLongestKernel<PhiloxCoins>{a.of, {a.of.key, a.of.key_at}}, visit);
}
template <typename Visit>
void with_kernel(const AcceptKSeq& a, const Visit& visit) {
  with_accept_kernel(AcceptKSeqKernel<PhiloxCoins>{a.of, {a.of.key, a.of.key_at}}, visit);
}
template <typename Visit>
void with_kernel(const AcceptMultiPath& a, const Visit& visit) {
  with_accept_kernel(AcceptMultiPathKernel<PhiloxCoins>{a.of, {a.of.key, a.of.key_at}}, visit);
}

}  // namespace speclab::cuda
