#pragma once

#include "core/backend/cuda/kernels/sampling_kernel.h"

// Finds which entries of a row top-k and top-p keep (CutRows), with several blocks per row. The result is the
// key of the smallest entry that is kept. cut_of() gives the same key for the whole row. The mass of an
// entry is its weight as an integer, or 1 for top-k. So the order in which blocks add masses does not matter.
//
// An entry has a code of 12 bits: its distance from the largest logit, in steps. A step divides the weight by
// e^(1/64). Larger entries have smaller codes. The first three launches find the code of the smallest entry
// that is kept, four bits per launch. With top-k, this is the smallest entry that top-k keeps. Every block
// sums the masses of its piece separately for each value of these four bits. The block of the row that
// finishes last adds up the pieces and chooses the value. The fourth launch collects the keys of the entries
// with this code. Its last block searches among them with cut_of_entries(). With both top-k and top-p, the
// entries with smaller codes are collected, too, because top-p needs the mass of exactly the entries that
// top-k keeps. If there are more than RowCut::kWords entries (many equal logits, or top-p with a top-k above
// kWords), this block searches the whole row instead.
//
// The alternative, one block per row (cut_of()), makes 16 passes over the row for top-k, 17 for top-p and 33
// for both. For a vocabulary of 128,256 sixteen passes read 8.2 MB, which takes one block at least 75 us,
// besides sorting the entries into buckets. The four launches take about 23 us for one row, 8 us of this time
// in the fourth launch (predicted, scripts/gpu_check/forecast.py).

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// What a step of CutRows knows about its row at the start.
struct CutStep {
  static constexpr int kCodeBits = 12, kStepBits = 4;
  static constexpr float kSteps = 64;  ///< number of steps that divide the weight by e

  Standardise a;
  RowCut* state;
  bool counts;  ///< the mass of an entry is 1, for top-k
  float max = 0;

  SPECLAB_DEVICE explicit CutStep(const Standardise& of)
      : a(of), state(of.cuts + simt::block_y()), counts(of.top_k > 0 && of.top_k < of.columns) {}

  /// Reads the largest logit. Returns false if the row needs no cut because it is invalid (Law::invalid).
  SPECLAB_DEVICE bool begin() {
    const auto at = static_cast<std::size_t>(simt::block_y()) * static_cast<std::size_t>(simt::grid_x());
    const simt::u64 best = PieceSpace::largest(a.meeting.best + at);
    max = value_of(best);
    return law_of(a, best).one_hot < 0;
  }
  SPECLAB_DEVICE simt::u32 code_of(float z) const {
    constexpr float kCodes = 1 << kCodeBits;
    const float steps = (max - z) * a.scale * kSteps;
    return static_cast<simt::u32>(steps < kCodes ? steps : kCodes - 1);
  }
  SPECLAB_DEVICE simt::u64 mass(float z) const { return counts ? 1 : mass_of(weight_of(a, z, max)); }
  SPECLAB_DEVICE bool enough(simt::u64 kept, simt::u64 total) const {
    return counts ? kept >= static_cast<simt::u64>(a.top_k)
                  : static_cast<double>(kept) >= a.top_p * static_cast<double>(total);
  }
  /// Calls visit(i, z) for this thread's share of the piece of this block.
  template <typename Visit>
  SPECLAB_DEVICE void visit_piece(const Visit& visit) const {
    const int begin = simt::block_x() * kRowPiece;
    visit_entries(
        begin + simt::thread_index(), simt::min(begin + kRowPiece, a.columns), kPieceThreads,
        [logits = logits_of(a, simt::block_y())](int i) { return simt::load_constant(logits + i); }, visit);
  }
  SPECLAB_DEVICE static simt::Shared<simt::u64> buckets() {
    static_assert(8 * kBucketWords <= 4 * PieceOrder::kEntries);
    return simt::shared<simt::u64>(PieceSpace::kWeightsAt, kBucketWords);
  }
  SPECLAB_DEVICE bool last() const { return PieceSpace::last_of_row(a.meeting.arrivals + simt::block_y()); }
};

// The grid is [rows][pieces].
struct CutLevelKernel {
  static constexpr const char* kName = "cut_level";
  static constexpr int kThreads = kPieceThreads;
  CutRows a;

  SPECLAB_DEVICE void operator()() const {
    CutStep step(a.of);
    if (!step.begin()) return;
    RowCut* state = step.state;
    const simt::u32 prefix = a.step == 0 ? 0 : simt::load(&state->code);
    const int shift = CutStep::kCodeBits - CutStep::kStepBits * (a.step + 1);
    simt::u64 own[kCutBuckets] = {};
    step.visit_piece([&](int, float z) {
      const simt::u32 code = step.code_of(z) >> shift;
      if (code >> CutStep::kStepBits != prefix) return;
      const simt::u64 mass = step.mass(z);
      const int digit = static_cast<int>(code & (kCutBuckets - 1));
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b) own[b] += digit == b ? mass : 0;
    });
    const auto buckets = CutStep::buckets();
    sum_buckets(buckets, own);
    if (simt::thread_index() == 0) {
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b)
        simt::store(&state->words[simt::block_x() * kCutBuckets + b], own[b]);
    }
    if (!step.last()) return;
    SPECLAB_UNROLL
    for (int b = 0; b < kCutBuckets; ++b) own[b] = 0;
    SPECLAB_ROLLED
    for (int piece = simt::thread_index(); piece < simt::grid_x(); piece += kPieceThreads) {
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b) own[b] += simt::load(&state->words[piece * kCutBuckets + b]);
    }
    sum_buckets(buckets, own);
    if (simt::thread_index() != 0) return;
    simt::u64 above = 0, total = 0;
    if (a.step > 0) {
      above = simt::load(&state->above);
      total = simt::load(&state->total);
    } else {
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b) total += own[b];
    }
    simt::u32 chosen = kCutBuckets - 1;
    bool found = false;
    SPECLAB_UNROLL
    for (int b = 0; b < kCutBuckets - 1; ++b) {
      if (found) continue;
      if (step.enough(above + own[b], total)) {
        chosen = static_cast<simt::u32>(b);
        found = true;
      } else {
        above += own[b];
      }
    }
    simt::store(&state->above, above);
    simt::store(&state->total, total);
    simt::store(&state->code, prefix << CutStep::kStepBits | chosen);
    simt::store(&state->count, 0u);
  }
};

// The grid is [rows][pieces].
struct CutSearchKernel {
  static constexpr const char* kName = "cut_search";
  static constexpr int kThreads = kPieceThreads;
  static constexpr int kResident = 2;  // leaves registers for the masses of the buckets
  CutRows a;

  SPECLAB_DEVICE void operator()() const {
    CutStep step(a.of);
    if (!step.begin()) return;
    RowCut* state = step.state;
    const simt::u32 wanted = simt::load(&state->code);
    const bool both = step.counts && a.of.top_p < 1;
    step.visit_piece([&](int i, float z) {
      const simt::u32 code = step.code_of(z);
      if (code > wanted || (code < wanted && !both)) return;
      const simt::u32 at = simt::atomic_add(&state->count, 1);
      if (at < RowCut::kWords) simt::store(&state->words[at], key_of(z, i));
    });
    if (!step.last()) return;
    const simt::u32 count = simt::load(&state->count);
    simt::u64 cut = 0;
    if (count <= RowCut::kWords) {
      cut = cut_of(
          a.of, CutStep::buckets(), step.max, static_cast<int>(count),
          [&](int i) { return simt::load(&state->words[i]); }, [](int, simt::u64 key) { return key; },
          both ? 0 : simt::load(&state->above), both ? 0 : simt::load(&state->total));
    } else {
      cut = cut_of(
          a.of, CutStep::buckets(), step.max, a.of.columns,
          [logits = logits_of(a.of, simt::block_y())](int i) { return simt::load_constant(logits + i); },
          [](int i, float z) { return key_of(z, i); }, 0, 0);
    }
    if (simt::thread_index() == 0) simt::store(&state->cut, cut);
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const CutRows& a, const Visit& visit) {
  const LaunchShape shape = shape_of_pieces(a.of.columns, a.of.rows);
  if (a.step + 1 < kCutSteps) visit(CutLevelKernel{a}, shape);
  else visit(CutSearchKernel{a}, shape);
}

}  // namespace speclab::cuda
