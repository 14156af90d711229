#include "core/decoding/on_target/sparse_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "core/base/error.h"

namespace speclab {

void SparseCacheOptions::fields(OptionVisitor& visit) {
  visit("first", first, Range<int>{0, 1 << 28}, "sparse cache: number of first positions that drafts see");
  visit("last", last, Range<int>{0, 1 << 28},
        "sparse cache: number of last committed positions that drafts see");
  visit("keep", keep,
        {{KeepMiddle::none, "none"}, {KeepMiddle::retrieved, "retrieved"}, {KeepMiddle::heavy, "heavy"}},
        "sparse cache: further positions that drafts see, between the first and the last ones. retrieved: "
        "those with the most attention in the newest read-out (see refresh); heavy: those with the most "
        "attention in all read-outs together");
  visit("keep_positions", keep_positions, Range<int>{1, 1 << 28},
        "retrieved, heavy: largest number of these positions in each layer");
  visit("chunk", chunk, Range<int>{1, 1 << 20},
        "retrieved, heavy: consecutive positions that are chosen together");
  visit("refresh", refresh, Range<int>{1, 1 << 20},
        "retrieved, heavy: drafts from one read-out of the attention weights to the next; a draft with a "
        "read-out begins with a forward over the whole cache");
}

SparseCache::SparseCache(const SparseCacheOptions& options, std::vector<int> kept, const Resources& resources,
                         const char* where)
    : options_(options), resources_(resources), slots_(static_cast<std::size_t>(resources.batch)) {
  const std::span<const int> layers = resources_.target->layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (kept.empty() || std::ranges::find(kept, layers[i]) != kept.end()) run_.push_back(i);
  }
  if (options_.keep == KeepMiddle::none) return;
  if (options_.chunk > options_.keep_positions) {
    throw Error({fmt::format("{}: chunk", where), std::to_string(options_.chunk),
                 fmt::format("at most keep_positions, {}", options_.keep_positions), ""});
  }
  if (!resources_.target->reads_attention() || layers.empty()) {
    throw Error({fmt::format("{}: keep", where), "positions that are chosen by attention",
                 "a target whose backend tells the weights of attention",
                 "Run the target on the CPU, or set keep to \"none\"."});
  }
}

void SparseCache::begin(const Sequence& sequence) { slot(sequence) = Slot(); }

void SparseCache::start_draft(const Sequence& sequence) {
  Slot& s = slot(sequence);
  s.read = options_.keep != KeepMiddle::none && s.until_read == 0;
  s.until_read = s.read ? options_.refresh - 1 : std::max(0, s.until_read - 1);
}

bool SparseCache::reads_next(const Sequence& sequence) const {
  return slots_[static_cast<std::size_t>(sequence.slot)].read;
}

void SparseCache::apply(const Sequence& sequence, Feed& feed) {
  Slot& s = slot(sequence);
  if (s.unread > 0) choose(s);
  const int committed = resources_.target_session(sequence).length();
  if (s.read) {
    s.read = false;
    s.unread = committed;
    s.newest.resize(run_.size() * static_cast<std::size_t>(committed));
    feed.attention = s.newest.data();
    return;
  }
  s.view = view_of(s, committed);
  feed.view = &s.view;
}

// Takes the newest read-out into account and chooses the positions.
void SparseCache::choose(Slot& s) const {
  const auto positions = static_cast<std::size_t>(s.unread);
  s.unread = 0;
  s.sums.resize(run_.size());
  s.chosen.resize(run_.size());
  for (std::size_t layer = 0; layer < run_.size(); ++layer) {
    std::vector<float>& sums = s.sums[layer];
    if (options_.keep == KeepMiddle::retrieved) sums.clear();
    sums.resize(positions);
    for (std::size_t at = 0; at < positions; ++at) sums[at] += s.newest[layer * positions + at];
    choose_chunks(sums, s.chosen[layer]);
  }
}

// Sets `chosen` to the positions of the chunks with the largest sums. Chunks that drafts see anyway are not
// candidates, and neither are the positions after the last whole chunk.
void SparseCache::choose_chunks(std::span<const float> sums, std::vector<std::int32_t>& chosen) const {
  struct Chunk {
    int begin;
    double mass;
  };
  const int positions = static_cast<int>(sums.size()), size = options_.chunk;
  std::vector<Chunk> chunks;
  for (int begin = 0; begin + size <= positions; begin += size) {
    if (begin + size <= options_.first || begin >= positions - options_.last) continue;
    const auto own = sums.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
    chunks.push_back({begin, std::accumulate(own.begin(), own.end(), 0.0)});
  }
  std::ranges::stable_sort(chunks, std::greater(), &Chunk::mass);
  chunks.resize(std::min(chunks.size(), static_cast<std::size_t>(options_.keep_positions / size)));
  std::ranges::sort(chunks, std::less(), &Chunk::begin);
  chosen.clear();
  for (const Chunk& chunk : chunks) {
    for (int at = chunk.begin; at < chunk.begin + size; ++at) chosen.push_back(at);
  }
}

CacheView SparseCache::view_of(const Slot& s, int committed) const {
  if (s.chosen.empty()) return CacheView::ends(options_.first, options_.last);
  std::vector<CacheView> views(resources_.target->layers().size(), CacheView::ends(0, 0));
  const int first = std::min(options_.first, committed), last = std::max(first, committed - options_.last);
  for (std::size_t layer = 0; layer < run_.size(); ++layer) {
    std::vector<std::int32_t> list(static_cast<std::size_t>(first));
    std::iota(list.begin(), list.end(), 0);
    for (const std::int32_t at : s.chosen[layer]) {
      if (at >= first && at < last) list.push_back(at);
    }
    for (int at = last; at < committed; ++at) list.push_back(at);
    views[run_[layer]] = CacheView::list(std::move(list));
  }
  return CacheView::per_layer(std::move(views));
}

}  // namespace speclab
