#include "core/spec/draft_chain.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/spec/processors.h"

namespace speclab {
namespace {

// Longer gaps (a drafter that rested for many steps) are prefilled in chunks first; what remains fits in one
// forward.
constexpr int kLongestCatchUp = 32;

constexpr SamplingParams kSoft{.temperature = 1, .top_k = 0, .top_p = 1};

}  // namespace

void DraftChainOptions::fields(OptionVisitor& visit) {
  visit("gamma", gamma, Range<int>{1, 64}, "tokens drafted per step");
  visit("draft_temperature", draft_temperature, Range<double>{-1, 100},
        "temperature of the draft; -1: the target's");
  visit("draft_top_k", draft_top_k, Range<int>{-1, 1 << 30}, "top-k of the draft, 0 = all; -1: the target's");
  visit("draft_top_p", draft_top_p, Range<double>{-1, 1}, "top-p of the draft; -1: the target's");
  schedule.fields(visit);
}

SamplingParams DraftChainOptions::sampling(const SamplingParams& target) const {
  return {draft_temperature < 0 ? target.temperature : draft_temperature,
          draft_top_k < 0 ? target.top_k : draft_top_k, draft_top_p < 0 ? target.top_p : draft_top_p};
}

struct DraftChain::Slot {
  explicit Slot(const Schedule& rule) : schedule(rule) {}

  Schedule schedule;
  std::unique_ptr<Session> session;
  SamplingParams sampling;
  std::vector<Token> cached;  // tokens in the session's cache
  // Of the draft in progress:
  const Sequence* sequence = nullptr;
  Draft* draft = nullptr;
  const Substitute* substitute = nullptr;
  int limit = 0;
  int depth = 0;
  double probability = 1;   // of what was drafted, by the draft
  std::vector<Token> path;  // drafted so far
  std::vector<RunnerUp> runner_ups;
  // Of the forward in progress:
  std::vector<Token> feed;
  std::vector<std::int32_t> parents;
  std::vector<int> nodes;
  std::int32_t row = 0;
  std::vector<float> logits;     // [head_rows]
  std::vector<float> processed;  // [head_rows], when there are processors
};

DraftChain::DraftChain(const DraftChainOptions& options, const Resources& resources)
    : options_(options), resources_(resources) {
  SPECLAB_CHECK(resources_.draft != nullptr, "a draft chain without a draft model");
  const Schedule schedule(options_.schedule, options_.gamma);
  for (int i = 0; i < resources_.batch; ++i) slots_.push_back(std::make_unique<Slot>(schedule));
}

DraftChain::~DraftChain() = default;

DraftChain::Slot& DraftChain::slot(const Sequence& sequence) {
  SPECLAB_CHECK(sequence.slot >= 0 && sequence.slot < static_cast<int>(slots_.size()), "slot {} of {}",
                sequence.slot, slots_.size());
  return *slots_[sequence.slot];
}

std::optional<DevicePlan> DraftChain::device_plan(const SamplingParams& target) const {
  if (options_.schedule.schedule != "constant") return std::nullopt;
  return DevicePlan{options_.gamma, options_.sampling(target)};
}

void DraftChain::begin(const Sequence& sequence) {
  Slot& s = slot(sequence);
  s.schedule.begin(sequence.turn);
  s.sampling = options_.sampling(sequence.sampling);
  if (!s.session) {
    s.session = resources_.open_draft();
    s.logits.resize(resources_.draft->config().head_rows());
  }
  s.session->rewind(0);
  s.cached.clear();
  if (sequence.position() > s.session->capacity())
    return;  // longer than the draft's context: catch_up() is never reached
  const TokenSpan prompt(sequence.tokens.data(), sequence.tokens.size() - 1);
  s.session->prefill(prompt);
  s.cached.assign(prompt.begin(), prompt.end());
}

void DraftChain::catch_up(Slot& s) {
  const std::vector<Token>& text = s.sequence->tokens;
  // The pending token is always fed, for its logits.
  const std::size_t most = std::min(s.cached.size(), text.size() - 1);
  std::size_t keep =
      std::min(most, static_cast<std::size_t>(s.sequence->prompt_length));  // the prompt never changes
  while (keep < most && s.cached[keep] == text[keep]) ++keep;
  if (static_cast<int>(keep) < s.session->length()) s.session->rewind(static_cast<int>(keep));
  s.cached.resize(keep);
  if (text.size() - keep > kLongestCatchUp) {
    const std::size_t until = text.size() - kLongestCatchUp;
    s.session->prefill(TokenSpan(text.data() + keep, until - keep));
    s.cached.insert(s.cached.end(), text.begin() + static_cast<std::ptrdiff_t>(keep),
                    text.begin() + static_cast<std::ptrdiff_t>(until));
    keep = until;
  }
  s.feed.assign(text.begin() + static_cast<std::ptrdiff_t>(keep), text.end());
}

bool DraftChain::extend(Slot& s) {
  const ModelConfig& config = resources_.draft->config();
  std::span<const float> logits = s.logits;
  if (s.sequence->processors) {
    s.processed.resize(s.logits.size());
    s.sequence->processors->apply(s.logits, config.head_ids, s.sequence->tokens, s.path, s.processed);
    logits = s.processed;
    // A reduced vocabulary may be banned as a whole: nothing to draft then.
    if (std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isinf(logit) && logit < 0; }))
      return false;
  }
  const int depth = s.depth + 1;
  const std::int64_t position = s.sequence->position() + depth;
  int q_index = Draft::kOneHot;
  Distribution& q = s.draft->new_q(&q_index);
  q.assign_logits(logits, s.sampling, config.head_ids, config.vocab);
  Token token = s.sequence->coupled
                    ? q.sample_coupled(s.sequence->coins, position)
                    : q.sample(s.sequence->coins, {.position = position, .purpose = Purpose::draft});
  // At temperature 0 the draft's own certainty is that of temperature 1; it costs a pass over the row.
  const Distribution* certainty = q.one_hot() ? nullptr : &q;
  if (certainty == nullptr && (want_runner_ups_ || leave_out_below_ > 0 || s.schedule.needs_confidence())) {
    soft_.assign_logits(logits, kSoft, config.head_ids, config.vocab);
    certainty = &soft_;
  }
  const double confidence = certainty != nullptr ? certainty->prob(token) : -1;
  if (want_runner_ups_) {
    certainty->top(2, best_);
    const auto other = std::find_if(best_.begin(), best_.end(), [=](Token best) { return best != token; });
    if (other != best_.end())
      s.runner_ups.push_back({depth, *other, static_cast<float>(certainty->prob(*other))});
  }
  if (leave_out_below_ > 0 && q.one_hot()) {
    s.probability *= confidence;
    if (s.probability < leave_out_below_) {
      s.draft->ended_by_schedule = depth > 1;
      return false;
    }
  }
  if (*s.substitute) {
    token = (*s.substitute)(*s.sequence, depth);
    q_index = Draft::kOneHot;
  }
  s.draft->add(token, s.depth, q_index, static_cast<float>(confidence));
  s.path.push_back(token);
  s.depth = depth;
  if (s.depth >= s.limit) return false;
  if (s.schedule.stop_after(confidence)) {
    s.draft->ended_by_schedule = true;
    return false;
  }
  s.feed.assign(1, token);
  return true;
}

void DraftChain::draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts,
                       const Substitute& substitute) {
  active_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Slot& s = slot(*sequences[i]);
    SPECLAB_CHECK(drafts[i]->tree.size() == 1, "a chain on top of {} drafted nodes",
                  drafts[i]->tree.drafted());
    // Token x_i is fed at position + i, the last one never.
    const auto room = static_cast<std::int64_t>(s.session->capacity()) - sequences[i]->position();
    s.limit = static_cast<int>(std::min<std::int64_t>({s.schedule.limit(), sequences[i]->depth_limit, room}));
    s.runner_ups.clear();
    if (s.limit <= 0) continue;
    s.sequence = sequences[i];
    s.draft = drafts[i];
    s.substitute = &substitute;
    s.depth = 0;
    s.probability = 1;
    s.path.clear();
    s.schedule.start_draft();
    drafts[i]->source = "draft";
    catch_up(s);
    active_.push_back(&s);
  }
  while (!active_.empty()) {
    feeds_.clear();
    for (Slot* s : active_) {
      const auto n = static_cast<std::int32_t>(s->feed.size());
      s->parents.resize(n);
      s->nodes.resize(n);
      for (std::int32_t node = 0; node < n; ++node) {
        s->parents[node] = node - 1;
        s->nodes[node] = node;
      }
      s->row = n - 1;
      feeds_.push_back({s->session.get(), s->feed, s->parents, {&s->row, 1}, s->logits.data(), nullptr});
    }
    resources_.draft->forward(feeds_);
    std::size_t left = 0;
    for (Slot* s : active_) {
      s->session->commit(s->nodes);
      s->cached.insert(s->cached.end(), s->feed.begin(), s->feed.end());
      if (extend(*s)) active_[left++] = s;
    }
    active_.resize(left);
  }
}

std::span<const DraftChain::RunnerUp> DraftChain::runner_ups(const Sequence& sequence) {
  return slot(sequence).runner_ups;
}

void DraftChain::observe(const Sequence& sequence, int drafted, int accepted) {
  if (drafted > 0) slot(sequence).schedule.observe(drafted, accepted);
}

}  // namespace speclab
