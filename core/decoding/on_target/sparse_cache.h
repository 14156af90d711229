#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/decoding/strategy.h"

namespace speclab {

/// Which positions between the first and the last ones a sparse cache keeps.
enum class KeepMiddle {
  none,       ///< none: StreamingLLM (Xiao et al. 2024), the window of MagicDec and SPIRe
  retrieved,  ///< those with the most attention in the newest read-out (TriForce)
  heavy,      ///< those with the most attention in all read-outs together: heavy hitters (H2O)
};

struct SparseCacheOptions {
  int first = 4;
  int last = 508;
  KeepMiddle keep = KeepMiddle::none;
  int keep_positions = 256;
  int chunk = 8;
  int refresh = 16;
  void fields(OptionVisitor& visit);
};

/// Chooses for each sequence the committed positions that drafts on the target's own session see: the first
/// ones, the last ones, and some between them that get much attention.
///
/// Unless `keep` is `none`, every `refresh`-th draft of a sequence reads out the attention. Its first forward
/// sees the whole cache and returns the attention weights of the cached keys, in each layer as the mean over
/// the heads (Feed::attention). From the next forward on, drafts see the chunks of consecutive positions
/// whose weights have the largest sums. Each layer has its own chunks.
///
/// TriForce (Sun et al. 2024, arXiv 2404.11912) ranks chunks by the product of the query and the mean key of
/// a chunk, which approximates the attention to the chunk. Here the attention weights themselves are summed.
/// H2O (Zhang et al. 2023, arXiv 2306.14048) adds up the attention of every token, the prompt included, and
/// deletes the other positions. Here `heavy` adds up only the attention of the pending tokens at the
/// read-outs, and the target keeps all positions.
///
/// The view depends on the text and on the steps at which drafts began, but on no coin. So a row with this
/// view is a distribution q of the next token like any other.
class SparseCache {
 public:
  /// `kept` are the layers that drafts run; empty: all. If keep is not `none`, throws Error, which begins
  /// with `where`, when a chunk is larger than keep_positions or the target cannot tell its attention.
  SparseCache(const SparseCacheOptions& options, std::vector<int> kept, const Resources& resources,
              const char* where);
  /// Starts a sequence in its slot.
  void begin(const Sequence& sequence);
  /// Starts a draft: from now on, the feeds of the sequence belong to it.
  void start_draft(const Sequence& sequence);
  /// Whether the next feed of the draft sees the whole cache, to read out the feed's attention. That feed
  /// should have only the row of the pending token.
  bool reads_next(const Sequence& sequence) const;
  /// The largest number of committed positions that a feed without a read-out sees.
  std::int64_t most_seen() const {
    return static_cast<std::int64_t>(options_.first) + options_.last +
           (options_.keep == KeepMiddle::none ? 0 : options_.keep_positions);
  }
  /// Sets Feed::view, or for a read-out Feed::attention. Valid until the next call for this sequence.
  void apply(const Sequence& sequence, Feed& feed);

 private:
  struct Slot {
    int until_read = 0;         // drafts before the next one with a read-out
    bool read = false;          // the next feed reads out attention
    int unread = 0;             // committed positions of a read-out that was not used yet; 0: there is none
    std::vector<float> newest;  // [layers that run, unread]
    std::vector<std::vector<float>> sums;           // [layers that run][positions]
    std::vector<std::vector<std::int32_t>> chosen;  // [layers that run], ascending positions
    CacheView view;
  };
  Slot& slot(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }
  void choose(Slot& slot) const;
  void choose_chunks(std::span<const float> sums, std::vector<std::int32_t>& chosen) const;
  CacheView view_of(const Slot& slot, int committed) const;

  SparseCacheOptions options_;
  Resources resources_;
  std::vector<std::size_t> run_;  // indices of the layers that drafts run, into Model::layers()
  std::vector<Slot> slots_;       // [batch]
};

}  // namespace speclab
