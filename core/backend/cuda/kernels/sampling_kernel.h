#pragma once

#include "core/backend/cuda/kernels/law.h"
#include "core/backend/cuda/kernels/row_pieces.h"

// Turns logits into tokens. Standardise makes a law (a probability distribution, law.h) of each row of
// logits, as Distribution::assign_logits() does on the host. Sample draws tokens from the laws.
//
// A row has one block or several (has_pieces()). Several blocks exchange results through a RowMeeting. Each
// of them has a piece of kRowPiece entries, and each of its 256 threads loads sixteen of them before it
// computes with the first. So a block has 16 KiB in flight. A row of 128,256 entries has 32 blocks, and all
// of it is in flight at once. If rows have several blocks and the temperature is above 0, two launches make
// the laws: the first finds the largest logit of each row, the second computes weights and sums. In each row,
// the block that finishes last adds up the sums of the row's chunks in order. So the result has the same bits
// as with one block per row. If top-k or top-p cuts the rows, four more launches run between these two and
// find the smallest entry that is kept (cut_kernel.h).
//
// The memory of an H200 moves 4.3 TB/s, so the two launches take at least bytes / 4.3 TB/s. Logits are read
// twice and weights are written once. For a vocabulary of 128,256 this is 0.4 us for 1 row and 11.5 us for 32
// rows, if nothing stays in L2 (predicted). The logits of 32 rows are 16.4 MB, which the L2 of an H100 or
// H200 (50 MB) holds. With 5.5 TB/s from L2 the bound is 9 us for 32 rows. For 1 row the two launches, about
// 2 us each, take longer than the traffic (predicted).

namespace speclab::cuda {

/// What the blocks of a row find out about top-k and top-p, step by step. cut_kernel.h explains the codes.
struct RowCut {
  static constexpr int kWords = 4096;
  simt::u64 cut = 0;  ///< out: the key (key_of()) of the smallest entry that is kept
  simt::u32 code =
      0;  ///< leading bits of the code of that entry; with top-k: of the smallest entry that top-k keeps
  /// Mass of the entries that are larger than all entries whose code begins with `code`. A larger entry has a
  /// smaller code. With top-k every entry has mass 1, also in `total`.
  simt::u64 above = 0;
  simt::u64 total = 0;  ///< mass of all entries
  simt::u32 count = 0;  ///< number of entries that the last step has collected
  /// In the last step: the keys of at most kWords of the collected entries. In the steps before: kCutBuckets
  /// masses of each piece.
  simt::u64 words[kWords] = {};
};

/// Turns rows of logits into laws. At temperature 0 a row becomes one-hot at its argmax. Otherwise the
/// weights are exp((z - max) * scale), and those below e^-87 are zero. Top-k and then top-p drop tokens by
/// setting their weights to zero. The law holds the sum of the remaining weights. start_laws() starts the
/// launches.
struct Standardise {
  const float* logits = nullptr;  ///< [rows, columns]
  const std::int32_t* ids =
      nullptr;  ///< [columns] tokens of a reduced vocabulary, ascending; null: column i is token i
  int rows = 0, columns = 0, vocab = 0;
  bool greedy = false;  ///< temperature 0
  float scale = 1;      ///< float(min(1 / temperature, 1e30))
  int top_k = 0;        ///< 0: keep all
  double top_p = 1;
  float* weights = nullptr;  ///< out [rows, vocab]; not written when greedy, may then be null
  Law* laws = nullptr;       ///< out [rows]
  int every = 1;             ///< row i is written to row i * every of weights, laws and sums
  /// out [rows, chunks of the vocabulary]: sums of the chunks of columns (row_order.h), for kernels that
  /// would otherwise sum the weights again; not written when greedy. Null: not written. Needed if a row has
  /// several blocks, except when greedy.
  double* sums = nullptr;
  RowMeeting meeting{};
  RowCut* cuts = nullptr;  ///< [rows] Null: a row that top-k or top-p cuts has one block
};
/// The first of the launches of a Standardise whose rows have several blocks. When greedy, it writes the
/// laws and there is no other launch.
struct LargestOfRows {
  Standardise of;
};
/// One of the kCutSteps launches between the first and the last one, if top-k or top-p cuts the rows.
struct CutRows {
  Standardise of;
  int step = 0;
};
inline constexpr int kCutSteps = 4;

/// Draws one token from each law with a coin (random number) of the position of the row, as
/// Distribution::sample() or sample_coupled() does on the host.
struct Sample {
  const float* weights = nullptr;  ///< [rows, vocab]
  const Law* laws = nullptr;       ///< [rows], valid
  const double* sums = nullptr;    ///< [rows, chunks] see Standardise; null: the kernel sums the rows itself
  int rows = 0, vocab = 0;
  PhiloxKey key{};
  const PhiloxKey* key_at = nullptr;  ///< see PhiloxCoins
  const std::int64_t* positions =
      nullptr;                      ///< [rows] positions of the coins; when coupled, of the drawn tokens
  simt::u32 purpose = 0, draw = 0;  ///< purpose and draw index of the coins; unused when coupled
  bool coupled = false;
  std::int32_t* tokens = nullptr;  ///< out [rows]
  RowMeeting meeting{};            ///< used only when coupled; other draws have one block per row
};

/// True if top-k or top-p may drop tokens.
inline bool is_cut(const Standardise& a) {
  return !a.greedy && ((a.top_k > 0 && a.top_k < a.columns) || a.top_p < 1);
}
/// True if the rows have several blocks.
inline bool has_pieces(const Standardise& a) {
  if (a.meeting.best == nullptr || a.columns <= kRowPiece) return false;
  return !is_cut(a) || (a.cuts != nullptr && row_pieces(a.columns) * kCutBuckets <= RowCut::kWords);
}
inline bool has_pieces(const Sample& a) {
  return a.meeting.best != nullptr && a.coupled && a.vocab > kRowPiece;
}

inline namespace SPECLAB_SIDE {

/// Returns the law, without its sum, of a row whose largest logit has the key `best` (key_of()).
SPECLAB_DEVICE Law law_of(const Standardise& a, simt::u64 best) {
  Law law;
  if (best >= kInvalidKey) law.invalid = index_of(best);
  else if (simt::bits_of(value_of(best)) == 0xff800000u) law.invalid = a.columns;
  if (law.invalid >= 0) law.one_hot = 0;
  else if (a.greedy) law.one_hot = a.ids == nullptr ? index_of(best) : simt::load(a.ids + index_of(best));
  return law;
}
SPECLAB_DEVICE void write_law(const Standardise& a, int row, const Law& law) {
  Law* to = a.laws + row * a.every;
  simt::store(&to->sum, law.sum);
  simt::store(&to->one_hot, law.one_hot);
  simt::store(&to->invalid, law.invalid);
}
SPECLAB_DEVICE const float* logits_of(const Standardise& a, int row) {
  return a.logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.columns);
}
SPECLAB_DEVICE float* weights_of(const Standardise& a, int row) {
  return a.weights + static_cast<std::size_t>(row * a.every) * static_cast<std::size_t>(a.vocab);
}
SPECLAB_DEVICE double* sums_of(const Standardise& a, int row) {
  return a.sums + static_cast<std::size_t>(row * a.every) * static_cast<std::size_t>(chunks_of(a.vocab));
}

SPECLAB_DEVICE float weight_of(const Standardise& a, float z, float max) {
  return exp_nonpositive((z - max) * a.scale);
}

/// Returns the key of the smallest entry that top-k and top-p keep. This entry must be one of the n given
/// entries, which have the keys key(i, load(i)). `above` is the mass of the entries of the row that have
/// larger keys than all given entries. With top-k it is their number. `total` is the mass of all entries of
/// the row, for top-p. If it is 0, the function adds up the masses of the
/// entries that top-k keeps (without top-k, of all entries), and these must all be given. With both top-k and
/// top-p, `above` and `total` must be 0.
template <typename Load, typename Key>
SPECLAB_DEVICE simt::u64 cut_of(const Standardise& a, const simt::Shared<simt::u64>& buckets, float max,
                                int n, const Load& load, const Key& key, simt::u64 above, simt::u64 total) {
  simt::u64 cut = 0;
  if (a.top_k > 0 && a.top_k < a.columns) {
    const auto most = static_cast<simt::u64>(a.top_k);
    cut = cut_of_entries(
        buckets, n, load, key, [](simt::u64) { return simt::u64{1}; }, above,
        [&](simt::u64 count) { return count >= most; });
  }
  if (a.top_p < 1) {
    const auto mass = [&](simt::u64 k) { return k < cut ? 0 : mass_of(weight_of(a, value_of(k), max)); };
    if (total == 0) {
      simt::u64 sum[kCutBuckets] = {};
      visit_row(n, load, [&](int i, const auto& loaded) { sum[0] += mass(key(i, loaded)); });
      sum_buckets(buckets, sum);
      total = sum[0];
    }
    const double wanted = a.top_p * static_cast<double>(total);
    const simt::u64 first = cut_of_entries(buckets, n, load, key, mass, above, [&](simt::u64 kept) {
      return static_cast<double>(kept) >= wanted;
    });
    cut = first > cut ? first : cut;
  }
  return cut;
}

// kAnyThreads says that the bits do not depend on the number of threads (law_threads), so a block may have
// fewer.
template <bool kTruncate>
struct StandardiseKernel {
  static constexpr const char* kName = kTruncate ? "standardise_truncate" : "standardise";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAnyThreads = true;
  Standardise a;

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const int row = simt::block_x(), n = a.columns;
    const auto load = [logits = logits_of(a, row)](int i) { return simt::load_constant(logits + i); };
    const simt::u64 best = largest_of_row(space, n, load);
    const float max = value_of(best);
    Law law = law_of(a, best);
    if (law.one_hot < 0) {
      float* weights = weights_of(a, row);
      if (a.ids != nullptr) {
        SPECLAB_ROLLED
        for (int i = simt::thread_index(); i < a.vocab; i += simt::block_threads())
          simt::store(weights + i, 0.0f);
        simt::block_sync();
      }
      simt::u64 cut = 0;
      if constexpr (kTruncate)
        cut = cut_of(a, space.buckets(), max, n, load, [](int i, float z) { return key_of(z, i); }, 0, 0);
      law.sum = sum_row(space, n, Entries{load, [&](int i, float z) {
                                            const float w = key_of(z, i) < cut ? 0.0f : weight_of(a, z, max);
                                            simt::store(
                                                weights + (a.ids == nullptr ? i : simt::load(a.ids + i)), w);
                                            return static_cast<double>(w);
                                          }});
      if (a.sums != nullptr) {
        const auto sums = space.chunk_sums();
        SPECLAB_ROLLED
        for (int chunk = simt::thread_index(); chunk < chunks_of(n); chunk += simt::block_threads())
          simt::store(sums_of(a, row) + chunk, static_cast<double>(sums[chunk]));
      }
    }
    if (simt::thread_index() == 0) write_law(a, row, law);
  }
};

// The grid is [rows][pieces].
struct LargestOfRowsKernel {
  static constexpr const char* kName = "largest_of_rows";
  static constexpr int kThreads = kPieceThreads;
  Standardise a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_y(), piece = simt::block_x(), pieces = simt::grid_x();
    const int begin = piece * kRowPiece, end = simt::min(begin + kRowPiece, a.columns);
    simt::u64 key = 0;
    visit_entries(
        begin + simt::thread_index(), end, kPieceThreads,
        [logits = logits_of(a, row)](int i) { return simt::load_constant(logits + i); },
        [&](int i, float z) {
          const simt::u64 other = key_of(z, i);
          key = other > key ? other : key;
        });
    key = block_largest(PieceSpace::keys(), key);
    simt::u64* best = a.meeting.best + static_cast<std::size_t>(row) * static_cast<std::size_t>(pieces);
    if (simt::thread_index() == 0) simt::store(best + piece, key);
    if (!a.greedy) {
      if (a.ids == nullptr) return;
      // The last launch writes only the weights of the reduced vocabulary. The other tokens have weight 0.
      float* weights = weights_of(a, row);
      const int share = (a.vocab + pieces - 1) / pieces, zeros_end = simt::min((piece + 1) * share, a.vocab);
      SPECLAB_ROLLED
      for (int i = piece * share + simt::thread_index(); i < zeros_end; i += kPieceThreads)
        simt::store(weights + i, 0.0f);
      return;
    }
    if (!PieceSpace::last_of_row(a.meeting.arrivals + row)) return;
    const simt::u64 largest = PieceSpace::largest(best);
    if (simt::thread_index() == 0) write_law(a, row, law_of(a, largest));
  }
};

// The grid is [rows][pieces].
template <bool kTruncate>
struct StandardisePiecesKernel {
  static constexpr const char* kName = "standardise_pieces";
  static constexpr int kThreads = kPieceThreads;
  Standardise a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_y(), piece = simt::block_x(), pieces = simt::grid_x();
    const int begin = piece * kRowPiece, end = simt::min(begin + kRowPiece, a.columns);
    const float* logits = logits_of(a, row);
    float z[kRowLoads];  // the loads are in flight while the block finds the largest logit
    SPECLAB_UNROLL
    for (int j = 0; j < kRowLoads; ++j)
      z[j] =
          simt::load_constant(logits + simt::min(begin + simt::thread_index() + j * kPieceThreads, end - 1));
    const simt::u64 best = PieceSpace::largest(a.meeting.best + static_cast<std::size_t>(row) *
                                                                    static_cast<std::size_t>(pieces));
    Law law = law_of(a, best);
    if (law.one_hot >= 0) {  // not a valid row
      if (piece == 0 && simt::thread_index() == 0) write_law(a, row, law);
      return;
    }
    const float max = value_of(best);
    simt::u64 cut = 0;
    if constexpr (kTruncate) cut = simt::load(&a.cuts[row].cut);
    float* weights = weights_of(a, row);
    const auto own = PieceSpace::weights();
    SPECLAB_UNROLL
    for (int j = 0; j < kRowLoads; ++j) {
      const int of_piece = simt::thread_index() + j * kPieceThreads, i = begin + of_piece;
      float w = weight_of(a, z[j], max);
      if (kTruncate && key_of(z[j], i) < cut) w = 0;
      if (i < end) simt::store(weights + (a.ids == nullptr ? i : simt::load_constant(a.ids + i)), w);
      own.set(PieceOrder::place(of_piece), i < end ? w : 0.0f);
    }
    double* sums = sums_of(a, row);
    const int chunks = chunks_of(a.columns);
    PieceOrder::sum_chunks(own, PieceSpace::lanes(), piece, chunks, sums);
    if (!PieceSpace::last_of_row(a.meeting.arrivals + row)) return;
    const auto all = PieceSpace::sums();
    SPECLAB_ROLLED
    for (int chunk = simt::thread_index(); chunk < chunks; chunk += kPieceThreads)
      all.set(chunk, simt::load(sums + chunk));
    simt::block_sync();
    law.sum = add_chunks(all, chunks);
    if (simt::thread_index() == 0) write_law(a, row, law);
  }
};

template <typename Coins>
struct SampleKernel {
  static constexpr const char* kName = "sample";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAnyThreads = true;
  Sample a;
  Coins coins;

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const int row = simt::block_x();
    const LawRow law = LawRow::of(a.weights, a.laws, row, a.vocab, a.sums);
    const std::int64_t position = simt::load(a.positions + row);
    const int token = a.coupled ? law.sample_coupled(space, a.vocab, coins, position)
                                : law.sample(space, a.vocab, coins, position, a.purpose, a.draw);
    if (simt::thread_index() == 0) simt::store(a.tokens + row, token);
  }
};

// Runs a coupled Sample of rows with several blocks. A race between the tokens (race_entries() in law.h)
// gives the token. The grid is [rows][pieces].
struct RaceKernel {
  static constexpr const char* kName = "race";
  static constexpr int kThreads = kPieceThreads;
  Sample a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_y(), piece = simt::block_x(), pieces = simt::grid_x();
    const LawRow law = LawRow::of(a.weights, a.laws, row, a.vocab);
    if (law.one_hot >= 0) {
      if (piece == 0 && simt::thread_index() == 0) simt::store(a.tokens + row, law.one_hot);
      return;
    }
    constexpr int kCounters = race_counters(kRowPiece);  // counters of a piece
    const int begin = piece * kCounters, end = simt::min(begin + kCounters, race_counters(a.vocab));
    const auto load = [&](int i) { return simt::load_constant(law.weights + i); };
    simt::u64 best = race_entries(begin + simt::thread_index(), end, kPieceThreads, a.vocab,
                                  PhiloxCoins{a.key, a.key_at}.own_key(), simt::load(a.positions + row),
                                  kGumbelCoin, load);
    best = block_largest(PieceSpace::keys(), best);
    simt::u64* met = a.meeting.best + static_cast<std::size_t>(row) * static_cast<std::size_t>(pieces);
    if (simt::thread_index() == 0) simt::store(met + piece, best);
    if (!PieceSpace::last_of_row(a.meeting.arrivals + row)) return;
    best = PieceSpace::largest(met);
    if (best == 0) {  // no token has a finite arrival time: takes the argmax
      visit_row(a.vocab, load, [&](int i, float w) {
        const simt::u64 key = key_of(w, i);
        best = key > best ? key : best;
      });
      best = block_largest(PieceSpace::keys(), best);
    }
    if (simt::thread_index() == 0) simt::store(a.tokens + row, index_of(best));
  }
};

}  // namespace SPECLAB_SIDE

inline LaunchShape shape_of_pieces(int n, int rows) {
  return {
      .grid_x = row_pieces(n), .grid_y = rows, .threads = kPieceThreads, .shared_bytes = PieceSpace::kBytes};
}

template <typename Visit>
void with_kernel(const LargestOfRows& a, const Visit& visit) {
  visit(LargestOfRowsKernel{a.of}, shape_of_pieces(a.of.columns, a.of.rows));
}
template <typename Visit>
void with_kernel(const Standardise& a, const Visit& visit) {
  if (has_pieces(a)) {
    if (a.sums == nullptr || chunks_of(a.columns) > PieceSpace::kMostChunks)
      fail_arguments(
          "standardise",
          "with several blocks per row, sums must be set and a row may have at most 2 million columns");
    const LaunchShape shape = shape_of_pieces(a.columns, a.rows);
    return is_cut(a) ? visit(StandardisePiecesKernel<true>{a}, shape)
                     : visit(StandardisePiecesKernel<false>{a}, shape);
  }
  const LaunchShape shape{
      .grid_x = a.rows, .threads = law_threads(a.vocab), .shared_bytes = LawSpace(a.vocab).bytes()};
  if (is_cut(a)) visit(StandardiseKernel<true>{a}, shape);
  else visit(StandardiseKernel<false>{a}, shape);
}
template <typename Visit>
void with_kernel(const Sample& a, const Visit& visit) {
  if (has_pieces(a)) return visit(RaceKernel{a}, shape_of_pieces(a.vocab, a.rows));
  visit(SampleKernel<PhiloxCoins>{a, {a.key, a.key_at}},
        LaunchShape{
            .grid_x = a.rows, .threads = law_threads(a.vocab), .shared_bytes = LawSpace(a.vocab).bytes()});
}

/// Calls start(name, arguments) for each launch of `a`.
template <typename Start>
void start_laws(const Standardise& a, const Start& start) {
  if (has_pieces(a)) start("largest_of_rows", LargestOfRows{a});
  if (has_pieces(a) && is_cut(a)) {
    for (int step = 0; step < kCutSteps; ++step) start("cut_rows", CutRows{a, step});
  }
  if (!has_pieces(a) || !a.greedy) start("standardise", a);
}

}  // namespace speclab::cuda
