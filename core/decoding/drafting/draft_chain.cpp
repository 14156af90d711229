#include "core/decoding/drafting/draft_chain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/budget/own_draft_costs.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/schedules/controller.h"
#include "core/decoding/rows/processors.h"

namespace speclab {
namespace {

constexpr SamplingParams kSoft{.temperature = 1, .top_k = 0, .top_p = 1};

OwnDraftCosts::Forward forward_of(const Model& target, const ChainOnTarget& chain) {
  std::vector<int> run;
  chain.layers.indices(target.layers(), target.name(), run);
  return {.layers = chain.most_layers > 0 ? chain.most_layers : static_cast<int>(run.size()),
          .all_layers = static_cast<int>(target.layers().size()),
          .exits = chain.layers.early_exit(),
          .most_seen = chain.cache != nullptr ? chain.cache->most_seen() : -1};
}

}  // namespace

void DraftChainOptions::fields(OptionVisitor& visit) {
  visit("gamma", gamma, Range<int>{1, 64}, "tokens drafted per step");
  draft.fields(visit);
  schedule.fields(visit);
}

struct DraftChain::Slot {
  explicit Slot(const Schedule& rule) : schedule(rule) {}

  Schedule schedule;
  std::optional<ShapeBudget> budget;
  std::optional<OwnDraftCosts> own_costs;  // of a chain on the target with a budget
  DraftCache cache;
  SamplingParams sampling;
  // State of the draft in progress:
  const Sequence* sequence = nullptr;
  Draft* draft = nullptr;
  const Substitute* substitute = nullptr;
  int limit = 0;
  int depth = 0;
  double probability = 1;   // for leave_out_below(): product of the draft's probabilities of the tokens
  std::vector<Token> path;  // tokens drafted so far
  std::vector<Token> fed;   // on the target: the pending token and the drafted tokens that are fed
  int layers = -1;          // with TokenSkips: the set of layers of the next row, and of the rows in flight
  int layers_in_flight = -1;
  std::vector<RunnerUp> runner_ups;
  // State of the forward in progress:
  std::vector<Token> feed;
  std::vector<std::int32_t> parents;
  std::int32_t row = 0;
  std::vector<float> logits;     // [head_rows]
  std::vector<float> state;      // [hidden], with correct_rows(): what the output head reads for `logits`
  Tap tap;                       // fetches `state`
  std::vector<float> processed;  // [head_rows], when there are processors
};

DraftChain::DraftChain(const DraftChainOptions& options, const Resources& resources, BudgetRule budget,
                       std::optional<ChainOnTarget> on_target)
    : options_(options),
      resources_(resources),
      has_budget_(budget == BudgetRule::automatic),
      on_target_(on_target),
      model_(on_target ? resources.target.get() : resources.draft.get()) {
  SPECLAB_CHECK(model_ != nullptr, "a draft chain without a draft model");
  const bool for_schedule = options_.schedule.info().needs_costs, needs_costs = has_budget_ || for_schedule;
  if (needs_costs && on_target_) require_layer_costs(resources_.costs.get(), "a chain of the target itself");
  if (needs_costs && !on_target_) require_draft_costs(resources_.costs.get(), "a chain of a draft model");
  std::shared_ptr<const StepCosts> costs = resources_.costs;  // for the schedule
  if (for_schedule && on_target_)                             // at the table's number of cached positions
    costs = OwnDraftCosts(costs, forward_of(*resources_.target, *on_target_), options_.gamma).table();
  const Schedule schedule(options_.schedule, options_.gamma, costs.get());
  if (schedule.controller() != nullptr) schedule.controller()->require_draft(model_->name());
  const int longest = std::max(options_.gamma, schedule.largest());
  for (int i = 0; i < resources_.batch; ++i) {
    slots_.push_back(std::make_unique<Slot>(schedule));
    if (!has_budget_) continue;
    Slot& s = *slots_.back();
    if (on_target_)
      s.own_costs.emplace(resources_.costs, forward_of(*resources_.target, *on_target_), longest);
    s.budget.emplace(s.own_costs ? s.own_costs->table() : resources_.costs, TreeShape::chain(longest),
                     ShapeBudget::Settings{});
  }
}

DraftChain::~DraftChain() = default;

DraftChain::Slot& DraftChain::slot(const Sequence& sequence) {
  SPECLAB_CHECK(sequence.slot >= 0 && sequence.slot < static_cast<int>(slots_.size()), "slot {} of {}",
                sequence.slot, slots_.size());
  return *slots_[sequence.slot];
}

std::optional<DevicePlan> DraftChain::device_plan(const SamplingParams& target) const {
  if (on_target_ || has_budget_ || options_.schedule.schedule != ScheduleRule::constant ||
      options_.schedule.top_probabilities > 0 || correct_)
    return std::nullopt;
  return DevicePlan{std::vector<int>(static_cast<std::size_t>(options_.gamma), 1),
                    options_.draft.over(target)};
}

void DraftChain::begin(const Sequence& sequence) {
  Slot& s = slot(sequence);
  s.schedule.begin(sequence.turn);
  if (s.budget) s.budget->begin();
  s.sampling = options_.draft.over(sequence.sampling);
  s.logits.resize(model_->config().head_rows());
  if (correct_) s.state.resize(static_cast<std::size_t>(model_->config().hidden));
  if (!on_target_) s.cache.begin(sequence, resources_);
  if (on_target_ && on_target_->exits != nullptr) on_target_->exits->begin(sequence);
  if (on_target_ && on_target_->cache != nullptr) on_target_->cache->begin(sequence);
}

std::int64_t DraftChain::room(Slot& s, const Sequence& sequence) const {
  if (on_target_) return resources_.target_session(sequence).capacity() - sequence.position();
  return s.cache.room(sequence);
}

// On the target, the first row of a draft is the pending token, and each further row is the child of the row
// before it.
Feed DraftChain::next_feed(Slot& s) {
  const auto n = static_cast<std::int32_t>(s.feed.size());
  s.parents.resize(n);
  std::iota(s.parents.begin(), s.parents.end(), on_target_ ? s.depth - 1 : -1);
  s.row = n - 1;
  Session& session = on_target_ ? resources_.target_session(*s.sequence) : s.cache.session();
  Feed feed{&session, s.feed, s.parents, {&s.row, 1}, s.logits.data()};
  if (correct_) {
    s.tap = {kFinalNorm, s.state.data(), {&s.row, 1}, Memory::kHost};
    feed.taps = {&s.tap, 1};
  }
  if (on_target_) {
    feed.continues = s.depth > 0;
    feed.layers = on_target_->layers;
    if (on_target_->cache != nullptr) on_target_->cache->apply(*s.sequence, feed);
  }
  return feed;
}

void DraftChain::compute_rows() {
  if (on_target_ && on_target_->exits != nullptr) {
    exiting_.clear();
    for (Slot* s : active_) exiting_.push_back({s->sequence, s->fed, s->logits.data()});
    on_target_->exits->run(exiting_);
  } else if (on_target_ && on_target_->skips != nullptr) {
    compute_skipping();
  } else {
    feeds_.clear();
    for (Slot* s : active_) feeds_.push_back(next_feed(*s));
    model_->forward(feeds_);
  }
}

// The next row may need other layers than the rows in flight. A row that skipped a layer has no K/V there. So
// the draft is then fed again, with the new layers.
void DraftChain::compute_skipping() {
  const TokenSkips& skips = *on_target_->skips;
  for (int layers = 0; layers < skips.sets(); ++layers) {
    feeds_.clear();
    for (Slot* s : active_) {
      if (s->layers != layers) continue;
      const bool again = s->layers_in_flight != layers;
      if (again) s->feed = s->fed;
      Feed feed = next_feed(*s);
      if (again) {
        std::iota(s->parents.begin(), s->parents.end(), -1);
        feed.continues = false;
      }
      feed.layers = LayerPart::only(skips.kept(layers));
      s->layers_in_flight = layers;
      feeds_.push_back(feed);
    }
    if (!feeds_.empty()) model_->forward(feeds_);
  }
}

void DraftChain::list_top(const Distribution& row, int count) {
  top_.assign(static_cast<std::size_t>(count), 0.0f);
  row.top(count, best_);
  for (std::size_t i = 0; i < best_.size(); ++i) top_[i] = static_cast<float>(row.prob(best_[i]));
}

bool DraftChain::extend(Slot& s) {
  const ModelConfig& config = model_->config();
  if (correct_) correct_(*s.sequence, s.depth + 1, s.state, s.logits);
  std::span<const float> logits = s.logits;
  if (s.sequence->processors) {
    s.processed.resize(s.logits.size());
    s.sequence->processors->apply(s.logits, config.head_ids, s.sequence->tokens, s.path, s.processed);
    logits = s.processed;
    // All tokens of a reduced vocabulary may be banned. Then there is nothing to draft.
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
                    : q.sample(s.sequence->coins, s.sequence->draft_coin(s.draft->tree.size()));
  // At temperature 0 the confidence is the probability at temperature 1. It costs a pass over the row.
  const Distribution* certainty = q.one_hot() ? nullptr : &q;
  const bool skips = on_target_ && on_target_->skips != nullptr;
  const int top = s.schedule.needs_top();
  if (certainty == nullptr && (want_runner_ups_ || leave_out_below_ > 0 || skips || top > 0 ||
                               s.schedule.needs_confidence() || s.schedule.needs_entropy())) {
    soft_.assign_logits(logits, kSoft, config.head_ids, config.vocab);
    certainty = &soft_;
  }
  const double confidence = certainty != nullptr ? certainty->prob(token) : -1;
  const double entropy = s.schedule.needs_entropy() ? certainty->entropy() : -1;
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
  if (top > 0) list_top(*certainty, top);
  else top_.clear();
  const int node =
      s.draft->add(token, s.depth, q_index, static_cast<float>(confidence), static_cast<float>(entropy));
  s.draft->source = on_target_ ? on_target_->source : "draft";
  s.path.push_back(token);
  s.depth = s.draft->must_keep = depth;
  const bool stop = s.schedule.stop_after(confidence, entropy, top_);  // also learns from the last token
  const int recorded = options_.schedule.top_probabilities;
  if (recorded > 0) s.draft->set_top(node, std::span(top_).first(static_cast<std::size_t>(recorded)));
  if (s.schedule.predicted() >= 0) s.draft->set_predicted(node, static_cast<float>(s.schedule.predicted()));
  if (s.depth >= s.limit) return false;
  if (stop) {
    s.draft->ended_by_schedule = true;
    return false;
  }
  s.feed.assign(1, token);
  s.fed.push_back(token);
  if (skips) s.layers = on_target_->skips->after(confidence);
  return true;
}

void DraftChain::draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts,
                       const Substitute& substitute) {
  active_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Slot& s = slot(*sequences[i]);
    SPECLAB_CHECK(drafts[i]->tree.size() == 1, "a chain cannot be added to {} drafted nodes",
                  drafts[i]->tree.drafted());
    s.limit = static_cast<int>(
        std::min<std::int64_t>({s.schedule.limit(), sequences[i]->depth_limit, room(s, *sequences[i])}));
    s.runner_ups.clear();
    if (s.limit > 0 && s.budget) {
      if (s.own_costs) s.own_costs->at(sequences[i]->position());
      s.limit = s.budget->choose(s.limit, on_target_ ? 0 : s.cache.behind(*sequences[i]));
    }
    if (s.limit <= 0) continue;
    s.sequence = sequences[i];
    s.draft = drafts[i];
    s.substitute = &substitute;
    s.depth = 0;
    s.probability = 1;
    s.path.clear();
    s.schedule.start_draft();
    if (!on_target_) s.cache.catch_up(*sequences[i], s.feed);
    else s.feed.assign(1, sequences[i]->tokens.back());
    if (on_target_ && on_target_->cache != nullptr) on_target_->cache->start_draft(*sequences[i]);
    s.fed = s.feed;
    s.layers = 0;
    s.layers_in_flight = -1;
    active_.push_back(&s);
  }
  while (!active_.empty()) {
    compute_rows();
    std::size_t left = 0;
    for (Slot* s : active_) {
      if (!on_target_) s->cache.keep(s->feed);
      if (extend(*s)) active_[left++] = s;
    }
    active_.resize(left);
  }
}

std::span<const DraftChain::RunnerUp> DraftChain::runner_ups(const Sequence& sequence) {
  return slot(sequence).runner_ups;
}

void DraftChain::correct_rows(Correct correct) {
  SPECLAB_CHECK(!on_target_, "rows of a chain on the target cannot be corrected");
  correct_ = std::move(correct);
}

DraftCache& DraftChain::cache(const Sequence& sequence) {
  SPECLAB_CHECK(!on_target_, "a chain on the target has no cache of its own");
  return slot(sequence).cache;
}

void DraftChain::observe(const Sequence& sequence, int drafted, int accepted) {
  if (drafted == 0) return;
  Slot& s = slot(sequence);
  s.schedule.observe(drafted, accepted);
  if (s.budget) s.budget->observe_chain(drafted, accepted);
}

}  // namespace speclab
