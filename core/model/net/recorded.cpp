#include <algorithm>

#include "core/backend/device_program.h"
#include "core/model/net/session.h"
#include "core/model/net/transformer.h"

namespace speclab {

// A forward that differs from an earlier one only in its numbers (tokens, positions, slots, ...) repeats it.
// Such a forward is recorded as a graph and then replayed, so that the host starts one graph instead of every
// kernel.

namespace {

constexpr int kMostRows = 16;  // with more rows the kernels take longer than the host needs to start them
constexpr int kTier = 256;     // bounds of the number of committed keys are 256, 512, 1024, ...

}  // namespace

// Whether to record the forward: the backend can do so, the forward is small, and only Workspace::numbers
// distinguishes it from other forwards of its session with the same key.
bool Model::repeats(std::span<const Feed> feeds, const Inputs& in) const {
  DeviceProgram* const program = backend().device_program();
  return program != nullptr && program->records_forwards() && feeds.size() == 1 && in.n <= kMostRows &&
         in.wanted_count > 0 && !in.prompt && in.taps.empty() && in.embedded.empty() &&
         in.part == LayerPart() && feeds[0].embeddings == nullptr && feeds[0].view == nullptr &&
         feeds[0].attention == nullptr;
}

// Like compute() of one sequence. A forward is recorded when its key comes for the second time.
const float* Model::compute_recorded(const Inputs& in, Placed placed) const {
  Session& session = *placed.session;
  RowsInFlight& rows = placed.rows;
  int bound = kTier;
  while (bound < rows.committed) bound *= 2;
  bound = std::min(bound, session.kv_.slots - rows.earlier - rows.n);
  if (!session.recorded_) session.recorded_ = std::make_shared<Recorded>();
  auto& entries = session.recorded_->entries;
  const Recorded::Key key{in.n, in.wanted_count, rows.earlier, bound, in.tokens};
  if (entries.size() >= Recorded::kMost && !entries.contains(key)) entries.clear();
  const auto [at, first] = entries.try_emplace(key, Recorded::Entry());
  if (first) return compute(in, {&placed, 1}, nullptr);
  Recorded::Entry& entry = at->second;
  DeviceProgram& program = *backend().device_program();
  if (!entry.graph) {
    rows.committed = bound;
    rows.committed_at = rows.committed_copy;
    entry.graph = program.record(false, [&] { entry.logits = compute(in, {&placed, 1}, nullptr); });
  }
  program.replay(*entry.graph);
  // A recorded forward runs on a device, and devices note no maxima (Backend::linear_noting).
  workspace_->noted = false;
  ++session.replayed_;
  return entry.logits;
}

}  // namespace speclab
