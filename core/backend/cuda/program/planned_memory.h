#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/plan.h"

// The memory of a plan on the device. Only planned.cpp and planned_memory.cpp include this header.

namespace speclab::cuda {

/// The nodes from `first` to first + n - 1 of a tree as rows of a forward. Nodes of smaller depth than `base`
/// are committed. `numbers` holds the arrays that the functions return. All except wanted() are written anew
/// for each forward.
struct TreeRows {
  int first = 0, n = 0, base = 0;
  const std::int32_t* path_begin = nullptr;  ///< [n + 1]
  Buffer<std::int32_t> begins{},
      numbers{};  ///< begins: path_begin of a draft's rows, whose tree never changes
  std::int32_t* tokens() const { return numbers.data(); }
  std::int32_t* position_rows() const { return tokens() + n; }
  std::int32_t* positions() const { return tokens() + 2 * n; }
  std::int32_t* slots() const { return tokens() + 3 * n; }
  std::int32_t* wanted() const { return tokens() + 4 * n; }
  std::int32_t* committed() const { return tokens() + 5 * n; }
  std::int32_t* paths() const { return tokens() + 5 * n + 1; }
};

/// The memory of a plan. Plan::own points to it.
struct Memory {
  Buffer<PlanState> state;
  PlanState begin;  ///< the state from which start_plan() starts; it has the tree unless the host drafts
  std::vector<TreeRows> draft;  ///< [depth]
  TreeRows target;
  Buffer<float> q, p, raw, draft_logits, target_logits;
  Buffer<Law> q_laws, p_laws, raw_laws;
  Buffer<double> q_sums, p_sums, raw_sums;  ///< see Standardise
  Buffer<double> residual;                  ///< Accept::residual
  // The memory of RowMeeting, through which the blocks of a row exchange results; empty if a row has one
  // block. Only one launch of a round uses it at a time.
  Buffer<simt::u64> row_best;
  Buffer<simt::u32> row_arrivals;
  Buffer<RowCut> row_cuts;  ///< also empty if neither top-k nor top-p is used
  Buffer<Verdict> verdict;
  Buffer<std::int32_t> ids;  ///< [draft_columns] tokens of a reduced vocabulary
  std::shared_ptr<void> ring;
};

inline const Memory& memory(const Plan& plan) { return *static_cast<const Memory*>(plan.own.get()); }

inline std::size_t times(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

}  // namespace speclab::cuda
