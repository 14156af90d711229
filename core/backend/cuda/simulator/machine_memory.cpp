#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/backend/cuda/kernels/simt.h"
#include "core/backend/cuda/simulator/machine.h"
#include "core/base/error.h"

// The global and the shared memory of the simulated GPU, and the checks of every access.

namespace speclab::simt {
namespace {

// Values of Shadow::reader, which tells who has read a granule since the last barrier. Below kOfWarp it is
// the index of the only thread that has read. kOfWarp + w stands for several threads of warp w, and kOfMany
// for several warps. If only one warp has read, its next read after a warp_sync() replaces the earlier ones.
constexpr std::uint16_t kOfWarp = 0x4000, kOfMany = 0x8000;

}  // namespace

// ---- Global memory

void* Machine::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = size < bytes ? nullptr : std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    throw Error(
        {fmt::format("memory of the simulated GPU for {:.1f} MiB", static_cast<double>(bytes) / (1 << 20)),
         "none left", "", "Use a smaller model or context, or free memory."});
  }
  std::memset(data, 0xff, size);
  const Range range{reinterpret_cast<std::uintptr_t>(data), bytes};
  ranges_.insert(std::upper_bound(ranges_.begin(), ranges_.end(), range,
                                  [](const Range& a, const Range& b) { return a.begin < b.begin; }),
                 range);
  return data;
}

void Machine::release(void* p) {
  if (p == nullptr) return;
  const auto at = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.begin == reinterpret_cast<std::uintptr_t>(p);
  });
  SPECLAB_CHECK(at != ranges_.end(), "{} is released and was not allocated", p);
  ranges_.erase(at);
  std::fill(std::begin(recent_), std::end(recent_), Range{});
  std::free(p);
}

void Machine::find_global(const void* p, std::size_t bytes, const std::source_location& where) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](std::uintptr_t a, const Range& b) { return a < b.begin; });
  if (after == ranges_.begin()) fail(fmt::format("{} bytes at {} lie in no allocation", bytes, p), where);
  const Range& range = *std::prev(after);
  const std::size_t offset = address - range.begin;
  if (offset > range.bytes || range.bytes - offset < bytes) {
    fail(fmt::format("{} bytes at {} lie {} bytes into an allocation of {} bytes", bytes, p, offset,
                     range.bytes),
         where);
  }
  if (address % bytes != 0) fail(fmt::format("{} bytes at {} are not aligned", bytes, p), where);
  recent_[next_recent_++ % 4] = range;
}

// ---- Launches that overlap

// Checks an access that comes before wait_for_previous(). If the launch overlaps, the launch right before it
// may still be writing. All earlier launches are done (simt.h).
void Machine::check_unwaited(const void* p, Access access, const std::source_location& where) {
  if (access != Access::kConstant) {
    fail(
        fmt::format("memory is {} before wait_for_previous()", access == Access::kWrite ? "written" : "read"),
        where);
  }
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const auto written = [&](const Range& range) { return at - range.begin < range.bytes; };
  if (overlap_ && std::any_of(written_before_.begin(), written_before_.end(), written))
    fail("memory that the previous launch writes is read before wait_for_previous()", where);
}

void Machine::wait_for_previous(const std::source_location& where) {
  if (!clocks_.empty()) return;  // a task of a cooperative launch, which never overlaps
  if (self->waited) fail("a thread calls wait_for_previous() twice", where);
  self->waited = true;
}

void Machine::launch_next(const std::source_location& where) {
  if (!self->waited) fail("launch_next() comes before wait_for_previous()", where);
}

void Machine::note_range(std::uintptr_t at) {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), at,
      [](std::uintptr_t a, const Range& b) { return a < b.begin; });  // check_global() found the range
  const Range& range = *std::prev(after);
  recently_written_[next_written_++ % 4] = range;
  const auto same = [&](const Range& other) { return other.begin == range.begin; };
  if (std::none_of(written_.begin(), written_.end(), same)) written_.push_back(range);
}

// Called when a launch starts.
void Machine::forget_writes() {
  written_before_ = std::exchange(written_, {});
  std::fill(std::begin(recently_written_), std::end(recently_written_), Range{});
}

// ---- Shared memory

void Machine::check_shared(int offset, int count, std::size_t size, std::size_t alignment,
                           const std::source_location& where) {
  if (offset < 0 || count < 0 ||
      static_cast<std::size_t>(offset) % std::max<std::size_t>(alignment, kGranule) != 0 ||
      static_cast<std::size_t>(offset) + static_cast<std::size_t>(count) * size >
          static_cast<std::size_t>(self->group->shared_bytes)) {
    fail(fmt::format("{} elements of {} bytes at offset {} of {} bytes of shared memory", count, size, offset,
                     self->group->shared_bytes),
         where);
  }
}

void Machine::fail_shared_index(int i, int bytes, int count, const std::source_location& where) {
  fail(fmt::format("{} bytes at element {} of a shared array of {} elements", bytes, i, count), where);
}

std::byte* Machine::touch_shared(int offset, int bytes, bool write, const std::source_location& where) {
  offset += self->group->shared_begin;
  for (int at = offset / kGranule; at < (offset + bytes) / kGranule; ++at)
    mark(shadows_[static_cast<std::size_t>(at)], write, where);
  return shared_.data() + offset;
}

// Returns whether `warp` alone has read the granule since the last barrier. `epoch` began with that barrier.
bool Machine::Shadow::read_by(int warp, std::uint64_t epoch) const {
  return read == epoch && reader < kOfMany && (reader & kOfWarp ? reader - kOfWarp : reader / kWarp) == warp;
}

// Fails if nothing orders this access after an earlier one that conflicts with it.
void Machine::check_race(const Shadow& shadow, bool write, const std::source_location& where) {
  const Thread& me = *self;
  const auto id = static_cast<std::uint16_t>(me.index);
  const int warp = me.index / kWarp;
  const std::uint64_t epoch = me.group->epoch;
  if (shadow.copier != 0) {
    fail(fmt::format("this thread {} shared memory while a copy that thread {} has started may write it",
                     write ? "writes" : "reads", shadow.copier - 1),
         where);
  }
  if (shadow.written == epoch && shadow.writer != id &&
      !(shadow.writer / kWarp == warp && shadow.write_warp_epoch < me.warp_epoch)) {
    fail(fmt::format("race: this thread {} shared memory that thread {} has written since the last barrier",
                     write ? "writes" : "reads", shadow.writer),
         where);
  }
  if (write && shadow.read == epoch && shadow.reader != id &&
      !(shadow.read_by(warp, epoch) && shadow.read_warp_epoch < me.warp_epoch))
    fail("race: this thread writes shared memory that another thread has read since the last barrier", where);
}

void Machine::mark(Shadow& shadow, bool write, const std::source_location& where) {
  const Thread& me = *self;
  const auto id = static_cast<std::uint16_t>(me.index);
  const int warp = me.index / kWarp;
  const std::uint64_t epoch = me.group->epoch;
  if (!write && shadow.written < me.group->begin)
    fail("this thread reads shared memory that no thread of the block has written", where);
  check_race(shadow, write, where);
  if (write) {
    shadow.written = epoch;
    shadow.writer = id;
    shadow.write_warp_epoch = me.warp_epoch;
    return;
  }
  const bool same_warp = shadow.read_by(warp, epoch);
  if (shadow.read != epoch || (same_warp && shadow.read_warp_epoch < me.warp_epoch)) shadow.reader = id;
  else if (shadow.reader != id)
    shadow.reader = same_warp ? static_cast<std::uint16_t>(kOfWarp | warp) : kOfMany;
  shadow.read = epoch;
  shadow.read_warp_epoch = me.warp_epoch;
}

// ---- Asynchronous copies

// A GPU may write the 16 bytes at any time between the start of the copy and its wait. The Machine reads the
// source at the start and writes at the wait. In between, every access to the destination fails. The wait
// fails if the source has changed.
void Machine::start_copy(int offset, const void* from, Access access, const std::source_location& where) {
  check_global(from, 16, where);
  watch_global(from, 16, access, where);
  AsyncCopy copy{self->group->shared_begin + offset, from, {}, where};
  for (int at = 0; at < 16; at += kGranule) {
    Shadow& shadow = shadows_[static_cast<std::size_t>((copy.to + at) / kGranule)];
    check_race(shadow, true, where);
    shadow.copier = static_cast<std::uint16_t>(self->index + 1);
  }
  std::memcpy(copy.bytes.data(), from, copy.bytes.size());
  self->copies.push_back(copy);
}

void Machine::finish_copies(int groups_left) {
  Thread& me = *self;
  if (me.groups.size() <= static_cast<std::size_t>(groups_left)) return;
  const std::size_t done = me.groups.size() - static_cast<std::size_t>(groups_left),
                    count = me.groups[done - 1];
  for (std::size_t i = 0; i < count; ++i) {
    const AsyncCopy& copy = me.copies[i];
    if (std::memcmp(copy.from, copy.bytes.data(), copy.bytes.size()) != 0)
      fail("global memory changes while a copy reads it", copy.where);
    for (int at = 0; at < 16; at += kGranule) {
      Shadow& shadow = shadows_[static_cast<std::size_t>((copy.to + at) / kGranule)];
      shadow.copier = 0;
      mark(shadow, true, copy.where);
    }
    std::memcpy(shared_.data() + copy.to, copy.bytes.data(), copy.bytes.size());
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(count));
  me.groups.erase(me.groups.begin(), me.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& group : me.groups) group -= count;
}

// ---- Global memory of blocks that run together

void Machine::released(const void* p) {
  if (clocks_.empty()) return;
  const std::size_t block = static_cast<std::size_t>(self->block - blocks_.data());
  Clock& published = published_.try_emplace(p, Clock(clocks_.size())).first->second;
  Clock& own = clocks_[block];
  for (std::size_t i = 0; i < own.size(); ++i) published[i] = std::max(published[i], own[i]);
  ++own[block];
}

void Machine::acquired(const void* p) {
  const auto at = published_.find(p);
  if (clocks_.empty() || at == published_.end()) return;
  Clock& own = clocks_[static_cast<std::size_t>(self->block - blocks_.data())];
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], at->second[i]);
}

void Machine::fence() {
  self->fenced = true;
  if (self->group->counter != nullptr) acquired(self->group->counter);
}

void Machine::counted(const void* p) {
  if (std::exchange(self->fenced, false)) released(p);
  self->group->counter = p;
}

void Machine::watch(const void* p, std::size_t bytes, Access access, const std::source_location& where) {
  const auto me = static_cast<std::size_t>(self->block - blocks_.data());
  const Clock& own = clocks_[me];
  for (auto at = reinterpret_cast<std::uintptr_t>(p) / kGranule;
       at < (reinterpret_cast<std::uintptr_t>(p) + bytes) / kGranule; ++at) {
    if (access == Access::kConstant) {
      const auto found = watched_.find(at);
      if (found != watched_.end() && found->second.writer >= 0)
        fail("this thread reads constant memory that this launch has written", where);
      continue;
    }
    Watched& last = watched_[at];
    if (last.writer >= 0 && static_cast<std::size_t>(last.writer) != me &&
        own[static_cast<std::size_t>(last.writer)] < last.written) {
      fail(fmt::format("race: this block {} memory that block {} has written, and nothing orders the two",
                       access == Access::kWrite ? "writes" : "reads", last.writer),
           where);
    }
    if (access == Access::kRead) {
      last.read.resize(clocks_.size());
      last.read[me] = own[me];
      continue;
    }
    for (std::size_t block = 0; block < last.read.size(); ++block) {
      if (block != me && own[block] < last.read[block])
        fail(fmt::format("race: this block writes memory that block {} has read, and nothing orders the two",
                         block),
             where);
    }
    last.writer = static_cast<std::int16_t>(me);
    last.written = own[me];
    last.read.clear();
  }
}

}  // namespace speclab::simt
