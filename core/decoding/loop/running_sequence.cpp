#include "core/decoding/loop/running_sequence.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/model/heads/head_runner.h"

namespace speclab {
namespace {

/// Temperature 1 without truncation. Lossy criteria look at this distribution when temperature 0 makes p
/// one-hot.
constexpr SamplingParams kRaw{.temperature = 1, .top_k = 0, .top_p = 1};

}  // namespace

Work RunningSequence::draft_work() const {
  Work sum = drafted_on_target;
  for (const Session* draft_session : draft_sessions) sum += draft_session->work();
  for (const Session* head_session : head_sessions) sum += head_session->work();
  for (const HeadRunner* head : heads) sum += head->work();
  return sum;
}

std::vector<Work> RunningSequence::work_by_draft(std::size_t count) const {
  std::vector<Work> sums(count);
  for (std::size_t i = 0; i < draft_sessions.size(); ++i)
    sums[draft_of_session[i]] += draft_sessions[i]->work();
  return sums;
}

void RunningSequence::begin_step(int capacity) {
  const int left = request.options.max_tokens - static_cast<int>(out.tokens.size());
  const std::int64_t room = capacity - 1 - sequence.position();
  sequence.depth_limit = static_cast<int>(std::min<std::int64_t>(left - 1, room));
  sequence.probe_limit = static_cast<int>(room);
  draft.reset(sequence.tokens.back());
  draft_before = draft_work();
  fed.clear();
  parents.clear();
  rows.clear();
  parts.clear();
}

void RunningSequence::expect_rows() {
  const TokenTree& tree = draft.tree;
  row_of.resize(static_cast<std::size_t>(tree.size()));
  std::int32_t wanted = 0;
  for (int node = 0; node < tree.size(); ++node) row_of[node] = tree.wants_row(node) ? wanted++ : -1;
  logits.resize(std::max(logits.size(), static_cast<std::size_t>(wanted) * vocab()));
  const int nodes = 1 + tree.drafted();
  if (static_cast<int>(p_.size()) < nodes) {
    p_.resize(nodes);
    raw_.resize(nodes);
    processed_.resize(nodes);
  }
  ready_.assign(nodes, 0);
}

TargetRow RunningSequence::target_row(int node) {
  const bool wants_raw = lossy && sequence.sampling.temperature <= 0;  // see criterion_row()
  if (!ready_[node]) {
    if (processors) {
      draft.tree.path_to(node, path);
      prefix_.clear();
      for (const int on_path : path) prefix_.push_back(draft.tree.token(on_path));
      processed_[node].resize(vocab());
      processors->apply(raw_logits(node), {}, sequence.tokens, prefix_, processed_[node]);
    }
    p_[node].assign_logits(row(node), sequence.sampling, {}, vocab());
    if (wants_raw) raw_[node].assign_logits(row(node), kRaw, {}, vocab());
    ready_[node] = 1;
  }
  return {&p_[node], wants_raw ? &raw_[node] : &p_[node]};
}

void RunningSequence::judge(Acceptance& result) {
  // The function captures one pointer, so it needs no allocation.
  accept(
      *rule, request.options.rule_options, draft, [this](int node) { return target_row(node); },
      sequence.coins, decided_from, result);
}

bool RunningSequence::take(Token token, int capacity, const std::function<void(Token, std::string&)>& bytes) {
  const GenerationOptions& options = request.options;
  sequence.tokens.push_back(token);
  out.tokens.push_back(token);
  running = false;
  const bool stopped = stops.active() && stops.push(token, bytes);
  if (!options.ignore_eos && std::find(request.eos.begin(), request.eos.end(), token) != request.eos.end())
    out.finish = Finish::eos;
  else if (stopped) out.finish = Finish::stop;
  else if (static_cast<int>(out.tokens.size()) >= options.max_tokens) out.finish = Finish::length;
  else if (sequence.position() >= capacity) out.finish = Finish::context;  // no room for the last token
  else running = true;
  return running;
}

void RunningSequence::emit(int capacity, const std::function<void(Token, std::string&)>& bytes) {
  emitted = 0;
  const int most = request.options.emit_at_most;
  limited = most > 0 && static_cast<int>(acceptance.path.size()) >= most;
  if (limited) {
    acceptance.next = draft.tree.token(acceptance.path[static_cast<std::size_t>(most) - 1]);
    acceptance.path.resize(static_cast<std::size_t>(most) - 1);
    acceptance.bonus = false;
  }
  for (const int node : acceptance.path) {
    ++emitted;
    if (!take(draft.tree.token(node), capacity, bytes)) return;
  }
  ++emitted;
  take(acceptance.next, capacity, bytes);
}

void RunningSequence::fetch_states(const Reads& reads) {
  if (!states.waiting()) return;
  if (reads.nodes == Reads::Nodes::kAll) {
    path.resize(static_cast<std::size_t>(draft.tree.size()));
    std::iota(path.begin(), path.end(), 0);
  } else {
    path.assign(1, 0);
    path.insert(path.end(), acceptance.path.begin(), acceptance.path.begin() + (emitted - 1));
  }
  states.fetch(reads, *session, path);
  ++state_fetches;
}

}  // namespace speclab
