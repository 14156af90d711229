#include "core/decoding/loop/decode_loop.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/decoding/loop/decode_slot.h"

namespace speclab {
namespace {

constexpr int kScratch = 128;
constexpr int kScratchOfPrefixes = 1024;
constexpr int kRowsOfPrefix = 16;  // that a node's root path may have on average

}  // namespace

DecodeLoop::DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
                       const StrategyChoice& strategy, LoopOptions options)
    : target_(std::move(target)), draft_(std::move(draft)), options_(std::move(options)) {
  SPECLAB_CHECK(target_ != nullptr && options_.batch >= 1, "target {}, batch {}", target_ != nullptr,
                options_.batch);
  SPECLAB_CHECK(options_.devices >= 1 && (options_.devices == 1 || !options_.batch_of_prefixes),
                "{} devices, batch of prefixes {}", options_.devices, options_.batch_of_prefixes);
  const ModelConfig& config = target_->config();
  if (!config.head_ids.empty()) {
    throw Error({fmt::format("model {}", target_->name()),
                 fmt::format("a head over {} of {} tokens", config.head_rows(), config.vocab),
                 "a target that predicts every token", "Use it as a draft."});
  }
  if (draft_ && draft_->config().vocab != config.vocab) {
    throw Error({fmt::format("draft {}", draft_->name()),
                 fmt::format("a vocabulary of {} tokens", draft_->config().vocab),
                 fmt::format("the {} tokens of its target {}", config.vocab, target_->name()),
                 "Use a draft that shares the target's tokenizer."});
  }
  capacity_ = options_.capacity > 0 ? options_.capacity : config.context;
  for (int i = 0; i < options_.batch; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->sequence.slot = i;
  }
  Resources resources;
  resources.target = target_;
  resources.draft = draft_;
  resources.batch = options_.batch;
  resources.capacity = capacity_;
  resources.open_draft = [this] {
    SPECLAB_CHECK(draft_ != nullptr && opening_ != nullptr,
                  "open_draft() outside begin(), or without a draft model");
    auto session = draft_->open(std::min(capacity_, draft_->config().context));
    opening_->draft_sessions.push_back(session.get());
    return session;
  };
  strategy_ = strategy.make(resources);
  strategy_name_ = strategy.info().name;
  const int nodes = strategy_->max_nodes();
  scratch_ = options_.scratch > 0         ? options_.scratch
             : options_.batch_of_prefixes ? std::max(kScratchOfPrefixes, kRowsOfPrefix * nodes)
                                          : std::max(kScratch, nodes) * (options_.devices > 1 ? 2 : 1);
  for (const auto& slot : slots_) slot->session = target_->open(capacity_, scratch_);
}

DecodeLoop::~DecodeLoop() = default;

const Model& DecodeLoop::target() const { return *target_; }
int DecodeLoop::capacity() const { return capacity_; }

GenerationRecord DecodeLoop::run(const Request& request, std::stop_token stop) {
  return std::move(run(std::span<const Request>(&request, 1), std::move(stop)).front());
}

std::vector<GenerationRecord> DecodeLoop::run(std::span<const Request> requests, std::stop_token stop) {
  SPECLAB_CHECK(!requests.empty() && requests.size() <= slots_.size(), "{} requests for a batch of {}",
                requests.size(), slots_.size());
  running_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    start(*slots_[i], requests[i]);
    if (slots_[i]->running) running_.push_back(slots_[i].get());
  }
  on_device_ = OnDevice::kNothing;
  if (!running_.empty() && running_[0]->request->options.device_loop != "off") {
    const std::string reason = running_.size() > 1 ? "several sequences at once" : plan(*running_[0]);
    if (!reason.empty() && running_[0]->request->options.device_loop == "on") {
      throw Error({"option device_loop", "on",
                   "steps that a device can run or verify by itself, but here: " + reason,
                   "\"auto\" leaves such steps to the host."});
    }
  }
  for (std::size_t i = 0; options_.on_emit && i < requests.size();
       ++i)  // nobody sees a token of what is refused
    options_.on_emit(slots_[i]->sequence.slot, StepRecord(), slots_[i]->out.tokens);
  if (on_device_ == OnDevice::kSteps) {
    decode_planned(*running_[0], stop);
    running_.clear();
  }
  PhaseClock clock;
  while (!running_.empty()) {
    if (stop.stop_requested()) {
      for (Slot* slot : running_) slot->out.finish = Finish::cancelled;
      break;
    }
    const std::int64_t cpu_before = cpu_now_ns();
    clock.start(Phase::other);
    sequences_.clear();
    drafts_.clear();
    for (Slot* slot : running_) {
      Sequence& sequence = slot->sequence;
      const int left = slot->request->options.max_tokens - static_cast<int>(slot->out.tokens.size());
      sequence.depth_limit =
          static_cast<int>(std::min<std::int64_t>(left - 1, capacity_ - 1 - sequence.position()));
      sequence.probe_limit = static_cast<int>(capacity_ - 1 - sequence.position());
      slot->draft.reset(sequence.tokens.back());
      slot->draft_before = slot->draft_work();
      sequences_.push_back(&sequence);
      drafts_.push_back(&slot->draft);
    }
    clock.enter(Phase::draft);
    strategy_->draft(sequences_, drafts_);
    clock.enter(Phase::other);
    lay_out_feeds();
    clock.enter(Phase::target);
    if (on_device_ == OnDevice::kVerdicts) verify_on_device(*running_[0]);
    else if (options_.devices > 1) forward_divided();
    else target_->forward(feeds_);
    clock.enter(Phase::accept);
    for (Slot* slot : running_) {
      if (on_device_ != OnDevice::kVerdicts) verify(*slot);
    }
    clock.enter(Phase::other);
    outcomes_.clear();
    for (Slot* slot : running_) {
      emit(*slot);
      commit(*slot);
      outcomes_.push_back({&slot->draft, &slot->acceptance, slot->emitted,
                           strategy_->reads_rows() ? slot->step_rows() : StepRows()});
    }
    clock.enter(Phase::draft);
    strategy_->observe(sequences_, outcomes_);
    clock.enter(Phase::other);
    for (Slot* slot : running_) record(*slot);
    const PhaseTimes times = clock.lap();
    const std::int64_t cpu = cpu_now_ns() - cpu_before;
    for (Slot* slot : running_) {  // outside the clock
      slot->out.steps.push_back(slot->step);
      slot->out.steps.back().times = times;
      slot->out.decode_ns += times.total();
      slot->out.cpu_ns += cpu;
      if (on_device_ == OnDevice::kVerdicts) {
        ++slot->out.verified_steps;
        fetch_rows(*slot);
      }
      look_closer(*slot, static_cast<int>(slot->out.steps.size()) - 1);
      tell(*slot);
    }
    std::erase_if(running_, [](const Slot* slot) { return !slot->running; });
  }
  std::vector<GenerationRecord> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Slot& slot = *slots_[i];
    slot.out.target = slot.session->work() - slot.target_begun;
    slot.out.draft = slot.draft_work() - slot.draft_begun;
    if (slot.out.planned_steps == 0 && !target_->backend().host_memory())
      slot.out.round_trips = slot.out.target.calls + slot.out.draft.calls;
    out.push_back(std::move(slot.out));
  }
  return out;
}

void DecodeLoop::start(Slot& slot, const Request& request) {
  const GenerationOptions& options = request.options;
  const int prompt_length = static_cast<int>(request.prompt.size());
  if (prompt_length == 0)
    throw Error({"prompt", "no tokens", "at least one token",
                 "Give some text, or let the chat template add its own."});
  if (prompt_length > capacity_) {
    throw Error({"prompt", fmt::format("{} tokens", prompt_length),
                 fmt::format("at most {}, the context of this run", capacity_), "Shorten the prompt."});
  }
  for (const Token token : request.prompt) {
    if (token < 0 || token >= slot.vocab()) {
      throw Error({"prompt", fmt::format("token {}", token),
                   fmt::format("ids from 0 to {}", slot.vocab() - 1), "Use the tokenizer of the target."});
    }
  }
  if (!options.stop.empty() && !options_.token_bytes) {
    throw Error({"option stop", fmt::format("{} stop strings", options.stop.size()),
                 "a model with a tokenizer", "Leave stop out."});
  }
  slot.request = &request;
  slot.refeed.clear();
  slot.rule = &options.acceptance_rule();
  slot.lossy = slot.rule->loss(options.rule_options, options.sampling) == LossClass::l3;
  slot.processors = std::make_unique<LogitsProcessors>(
      LogitsProcessors::Options{options.repetition_penalty,
                                options.ignore_eos ? 0 : options.min_length,
                                {options.banned_tokens.begin(), options.banned_tokens.end()},
                                request.eos},
      prompt_length);
  if (!slot.processors->active()) slot.processors.reset();
  slot.stops.reset(options.stop);

  Sequence& sequence = slot.sequence;
  sequence.tokens.assign(request.prompt.begin(), request.prompt.end());
  sequence.tokens.reserve(request.prompt.size() + options.max_tokens);
  sequence.prompt_length = prompt_length;
  sequence.turn = request.turn;
  sequence.sampling = options.sampling;
  sequence.coins = request.coins;
  sequence.coupled = slot.rule->name == "coupled";
  sequence.processors = slot.processors.get();
  sequence.reference = request.reference;
  sequence.eos = options.ignore_eos ? TokenSpan() : TokenSpan(request.eos);

  GenerationRecord& out = slot.out;
  out = GenerationRecord();
  out.context_length = prompt_length;
  out.tokens.reserve(options.max_tokens);
  out.steps.reserve(options.max_tokens);
  if (options_.hash_rows) out.row_hashes.reserve(options.max_tokens);
  slot.draft.reset(sequence.tokens.back());  // no path: the row after the prompt is that of node 0
  slot.expect_rows();
  prefill(slot);
  std::int64_t begun = wall_now_ns();
  const Token first =
      slot.rule->bonus(slot.target_row(0), sequence.coins, prompt_length, options.rule_options);
  slot.take(first, capacity_, options_.token_bytes);
  out.prefill_ns += wall_now_ns() - begun;
  slot.target_begun = slot.session->work();
  if (options_.hash_rows) out.row_hashes.push_back(hash_row(slot.logits.data(), slot.vocab()));

  const Work draft_before = slot.draft_work();
  if (slot.running) {
    begun = wall_now_ns();
    opening_ = &slot;
    strategy_->begin(sequence);
    opening_ = nullptr;
    out.draft_prefill_ns = wall_now_ns() - begun;
  }
  slot.draft_begun = slot.draft_work();
  out.draft_prefill = slot.draft_begun - draft_before;
}

// The target's session holds the prompt, its last row is in slot.logits; time and work go to the record.
void DecodeLoop::prefill(Slot& slot) {
  const Request& request = *slot.request;
  PrefillCost cost;
  if (options_.prefills) {
    const PrefillCache::Prefilled& prefilled =
        options_.prefills->prefill(*target_, request.prompt, request.turn, capacity_);
    slot.session->copy(*prefilled.session);
    std::ranges::copy(prefilled.logits, slot.logits.begin());
    cost = prefilled.cost;
  } else {
    cost = timed_prefill(*slot.session, request.prompt, slot.logits.data());
  }
  slot.out.prefill_ns = cost.ns;
  slot.out.target_prefill = cost.work;
}

void DecodeLoop::lay_out_feeds() {
  feeds_.clear();
  for (Slot* slot : running_) {
    const TokenTree& tree = slot->draft.tree;
    const int nodes = tree.size();
    SPECLAB_CHECK(tree.max_depth() <= slot->sequence.depth_limit || nodes == 1,
                  "a draft of depth {} where {} is the limit", tree.max_depth(), slot->sequence.depth_limit);
    SPECLAB_CHECK(tree.max_probe_depth() <= slot->sequence.probe_limit,
                  "a probe of depth {} where {} is the limit", tree.max_probe_depth(),
                  slot->sequence.probe_limit);
    slot->expect_rows();
    slot->fed.clear();
    slot->parents.clear();
    if (options_.devices > 1) {
      divide(*slot);
      continue;
    }
    slot->node_at.resize(nodes);
    if (options_.batch_of_prefixes) {
      for (int node = 0; node < nodes; ++node) {
        tree.path_to(node, slot->path);
        slot->fed.push_back(tree.token(0));
        slot->parents.push_back(-1);
        for (const int on_path : slot->path) {
          slot->parents.push_back(static_cast<std::int32_t>(slot->fed.size()) - 1);
          slot->fed.push_back(tree.token(on_path));
        }
        slot->node_at[node] = static_cast<std::int32_t>(slot->fed.size()) - 1;
      }
    } else {
      slot->fed.assign(tree.tokens().begin(), tree.tokens().end());
      slot->parents.assign(tree.parents().begin(), tree.parents().end());
      std::iota(slot->node_at.begin(), slot->node_at.end(), 0);
    }
    slot->rows.clear();
    for (int node = 0; node < nodes; ++node) {
      if (tree.wants_row(node)) slot->rows.push_back(slot->node_at[node]);
    }
    check_scratch(slot->fed.size());
    feeds_.push_back({slot->session.get(), slot->fed, slot->parents, slot->rows, slot->logits.data(), nullptr,
                      strategy_->reads_rows() ? &slot->maxima : nullptr});
  }
}

void DecodeLoop::check_scratch(std::size_t rows) const {
  if (rows <= static_cast<std::size_t>(scratch_)) return;
  throw Error({"draft", fmt::format("{} rows to verify", rows), fmt::format("at most {} in flight", scratch_),
               options_.batch_of_prefixes ? "Draft less, or verify in one pass." : "Draft less."});
}

void DecodeLoop::verify(Slot& slot) {
  slot.decided_from = slot.sequence.position();
  // Expected acceptance takes passes over both rows that decoding does not need: look_closer() walks again
  // for it, outside the clock. A script cannot be asked twice.
  slot.acceptance.want_expected = slot.sequence.coins.is_scripted();
  slot.walk(slot.acceptance);
}

// Takes the accepted path and the next token into the text, up to the first cut.
void DecodeLoop::emit(Slot& slot) {
  slot.emitted = 0;
  for (const int node : slot.acceptance.path) {
    ++slot.emitted;
    if (!slot.take(slot.draft.tree.token(node), capacity_, options_.token_bytes)) return;
  }
  ++slot.emitted;
  slot.take(slot.acceptance.next, capacity_, options_.token_bytes);
}

// The cache gets everything but the last token of the text: that one is pending.
void DecodeLoop::commit(Slot& slot) {
  slot.keep.assign(1, 0);
  const int deepest = slot.emitted > 1 ? slot.acceptance.path[slot.emitted - 2] : 0;
  if (options_.batch_of_prefixes) {
    const int last = slot.node_at[deepest];
    slot.keep.clear();
    for (int row = last - (slot.emitted - 1); row <= last; ++row) slot.keep.push_back(row);
  } else {
    slot.keep.insert(slot.keep.end(), slot.acceptance.path.begin(),
                     slot.acceptance.path.begin() + (slot.emitted - 1));
  }
  if (on_device_ == OnDevice::kVerdicts) slot.session->follow_commit(slot.emitted);
  else if (options_.devices > 1) commit_divided(slot);
  else slot.session->commit(slot.keep);
}

}  // namespace speclab
