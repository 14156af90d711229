// Sets up the decode loop and starts generations: checks the request, runs the prefill, samples the first
// token and chooses an executor for the steps.
#include <algorithm>

#include "core/base/error.h"
#include "core/model/heads/head_runner.h"
#include "core/measure/clock.h"
#include "core/decoding/ahead/divided_models.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/loop/step_record.h"

namespace speclab {

namespace {

/// Sets a pointer for the duration of a call, and sets it to null afterwards, also if the call throws.
template <class T>
class SetWhileOpening {
 public:
  SetWhileOpening(T*& pointer, T& value) : pointer_(pointer) { pointer_ = &value; }
  ~SetWhileOpening() { pointer_ = nullptr; }
  SetWhileOpening(const SetWhileOpening&) = delete;
  SetWhileOpening& operator=(const SetWhileOpening&) = delete;

 private:
  T*& pointer_;
};

std::vector<std::shared_ptr<const Model>> list_of(std::shared_ptr<const Model> draft) {
  std::vector<std::shared_ptr<const Model>> drafts;
  if (draft) drafts.push_back(std::move(draft));
  return drafts;
}

}  // namespace

DecodeLoop::DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
                       const StrategyChoice& strategy, LoopOptions options)
    : DecodeLoop(std::move(target), list_of(std::move(draft)), strategy, std::move(options)) {}

DecodeLoop::DecodeLoop(std::shared_ptr<const Model> target, std::vector<std::shared_ptr<const Model>> drafts,
                       const StrategyChoice& strategy, LoopOptions options)
    : target_(std::move(target)), draft_models_(std::move(drafts)), options_(std::move(options)) {
  SPECLAB_CHECK(target_ != nullptr && options_.batch >= 1, "target {}, batch {}", target_ != nullptr,
                options_.batch);
  SPECLAB_CHECK(options_.devices >= 1 && (options_.devices == 1 || options_.verify == VerifyWith::one_pass),
                "{} devices, but only a verification in one pass can use several", options_.devices);
  const ModelConfig& config = target_->config();
  if (!config.head_ids.empty()) {
    throw Error({fmt::format("model {}", target_->name()),
                 fmt::format("an output head for {} of {} tokens", config.head_rows(), config.vocab),
                 "a target that predicts every token", "Use it as a draft."});
  }
  for (const auto& draft : draft_models_) {
    SPECLAB_CHECK(draft != nullptr, "a null model in a list of {} drafts", draft_models_.size());
    if (draft->config().vocab == config.vocab) continue;
    throw Error({fmt::format("draft {}", draft->name()),
                 fmt::format("a vocabulary of {} tokens", draft->config().vocab),
                 fmt::format("the {} tokens of its target {}", config.vocab, target_->name()),
                 "Use a draft that shares the target's tokenizer."});
  }
  undivided_ = target_;
  if (strategy.info().drafts_ahead && !draft_models_.empty()) {
    DividedModels divided = divide_threads(target_, draft_models_.front(), strategy.info().name);
    target_ = std::move(divided.target);
    draft_models_.front() = std::move(divided.draft);
  }
  capacity_ = options_.capacity > 0 ? options_.capacity : config.context;
  for (int i = 0; i < options_.batch; ++i) {
    slots_.push_back(std::make_unique<RunningSequence>());
    slots_.back()->sequence.slot = i;
  }
  Resources resources;
  resources.target = target_;
  if (!draft_models_.empty()) resources.draft = draft_models_.front();
  resources.drafts = draft_models_;
  resources.batch = options_.batch;
  resources.capacity = capacity_;
  resources.costs = options_.costs;
  resources.open_draft_at = [this](std::size_t i) {
    SPECLAB_CHECK(i < draft_models_.size() && opening_ != nullptr,
                  "open_draft() outside begin(), or without a draft model");
    auto session = draft_models_[i]->open(std::min(capacity_, draft_models_[i]->config().context),
                                          std::max(kLeastRowsInFlight, strategy_->max_nodes()));
    opening_->draft_sessions.push_back(session.get());
    opening_->draft_of_session.push_back(i);
    return session;
  };
  resources.open_draft = [open = resources.open_draft_at] { return open(0); };
  resources.open_session = [this](const Model& model) {
    SPECLAB_CHECK(opening_ != nullptr, "open_session() outside observe_prompt() and begin()");
    auto session = model.open(std::min(capacity_, model.config().context),
                              std::max(kLeastRowsInFlight, strategy_->max_nodes()));
    opening_->head_sessions.push_back(session.get());
    return session;
  };
  resources.open_heads = [this] {
    SPECLAB_CHECK(opening_ != nullptr, "open_heads() outside observe_prompt() and begin()");
    auto heads = std::make_unique<HeadRunner>(target_);
    opening_->heads.push_back(heads.get());
    return heads;
  };
  resources.target_session = [this](const Sequence& sequence) -> Session& {
    return *slots_[static_cast<std::size_t>(sequence.slot)]->session;
  };
  strategy_ = strategy.make(resources);
  strategy_name_ = strategy.info().name;
  reads_ = strategy_->reads();

  ExecutorSetting setting{target_.get(),           &options_,      strategy_.get(), &reads_,
                          strategy_->target_use(), strategy_name_, capacity_,       0};
  const auto make_on_host = [&] {
    for (const ExecutorKind& kind : executor_kinds()) {
      if (kind.on_device) continue;
      if (auto executor = kind.make(setting)) return executor;
    }
    SPECLAB_CHECK(false, "no executor for these options");
  };
  setting.scratch =
      options_.scratch > 0 ? options_.scratch : make_on_host()->rows_in_flight(strategy_->max_nodes());
  on_host_ = make_on_host();
  on_device_.resize(slots_.size());
  for (auto& of_slot : on_device_) {
    for (const ExecutorKind& kind : executor_kinds()) {
      if (!kind.on_device) continue;
      if (auto executor = kind.make(setting)) of_slot.push_back(std::move(executor));
    }
  }
  for (const auto& slot : slots_) slot->session = target_->open(capacity_, setting.scratch);
}

DecodeLoop::~DecodeLoop() = default;

const Model& DecodeLoop::target() const { return *target_; }
int DecodeLoop::capacity() const { return capacity_; }

std::uint64_t DecodeLoop::add(const Request& request) {
  check(request);
  const auto free = std::ranges::find_if(
      slots_, [&](const auto& slot) { return std::ranges::find(running_, slot.get()) == running_.end(); });
  RunningSequence& sequence = **free;
  sequence.ticket = tickets_++;
  start(sequence, request);
  if (sequence.running) choose_executor(sequence);
  finished_.reserve(finished_.size() + slots_.size());  // steps then allocate no memory for this list
  if (options_.on_emit) options_.on_emit(sequence.sequence.slot, StepRecord(), sequence.out.tokens);
  if (sequence.running) {
    const auto beside =
        std::ranges::find(running_.rbegin(), running_.rend(), sequence.executor, &RunningSequence::executor);
    running_.insert(beside.base() == running_.begin() ? running_.end() : beside.base(), &sequence);
  } else {
    retire(sequence);
  }
  return sequence.ticket;
}

void DecodeLoop::check(const Request& request) const {
  if (!has_room()) {
    throw Error({"decode loop", fmt::format("another request beside {} running ones", running_.size()),
                 fmt::format("at most {} at a time", slots_.size()),
                 "Wait until one has finished, or make the loop with a larger batch."});
  }
  const int prompt_length = static_cast<int>(request.prompt.size());
  if (prompt_length == 0)
    throw Error({"prompt", "no tokens", "at least one token",
                 "Give some text, or let the chat template add its own."});
  if (prompt_length > capacity_) {
    throw Error({"prompt", fmt::format("{} tokens", prompt_length),
                 fmt::format("at most {}, the context of this run", capacity_), "Shorten the prompt."});
  }
  const int vocab = target_->config().vocab;
  for (const Token token : request.prompt) {
    if (token < 0 || token >= vocab) {
      throw Error({"prompt", fmt::format("token {}", token), fmt::format("ids from 0 to {}", vocab - 1),
                   "Use the tokenizer of the target."});
    }
  }
  if (request.options.emit_at_most > 0 && request.options.device_loop != DeviceLoop::off) {
    throw Error(
        {"option emit_at_most", "device_loop", "device_loop off", "A device emits all accepted tokens."});
  }
  if (options_.row_details && request.options.device_loop != DeviceLoop::off) {
    throw Error({"row_details", "device_loop", "device_loop off",
                 "The rows of steps that a device runs by itself are not on the host."});
  }
  if (!request.options.stop.empty() && !options_.token_bytes) {
    throw Error({"option stop", fmt::format("{} stop strings", request.options.stop.size()),
                 "a model with a tokenizer", "Leave stop out."});
  }
}

void DecodeLoop::start(RunningSequence& slot, const Request& request) {
  const GenerationOptions& options = request.options;
  const int prompt_length = static_cast<int>(request.prompt.size());
  slot.request = request;
  slot.executor = nullptr;
  slot.state_fetches = 0;
  slot.drafted_on_target = Work();
  slot.running = false;
  slot.rule = &options.acceptance_rule();
  slot.lossy = slot.rule->loss(options.rule_options, options.sampling) == LossClass::l3;
  slot.processors = std::make_unique<LogitsProcessors>(options.processors(request.eos, prompt_length));
  if (!slot.processors->active()) slot.processors.reset();
  slot.stops.reset(slot.request.options.stop);  // `stops` keeps a reference to this list

  Sequence& sequence = slot.sequence;
  sequence.tokens.assign(request.prompt.begin(), request.prompt.end());
  sequence.tokens.reserve(request.prompt.size() + options.max_tokens);
  sequence.prompt_length = prompt_length;
  sequence.turn = request.turn;
  sequence.sampling = options.sampling;
  sequence.coins = request.coins;
  sequence.coupled = slot.rule->coins == CoinUse::gumbel;
  sequence.noise_streams = options.rule_options.streams;
  sequence.processors = slot.processors.get();
  sequence.reference = request.reference;
  sequence.eos = options.ignore_eos ? TokenSpan() : TokenSpan(slot.request.eos);

  GenerationRecord& out = slot.out;
  out = GenerationRecord();
  out.context_length = prompt_length;
  out.tokens.reserve(options.max_tokens);
  out.steps.reserve(options.max_tokens);
  if (options_.hash_rows) out.row_hashes.reserve(options.max_tokens);
  // The draft is a tree with one node, so that the row after the prompt is the row of node 0.
  slot.draft.reset(sequence.tokens.back());
  slot.expect_rows();
  const Work draft_before = slot.draft_work();
  prefill(slot);
  std::int64_t begun = wall_now_ns();
  const Token first =
      slot.rule->bonus(slot.target_row(0), sequence.coins, prompt_length, options.rule_options);
  slot.take(first, capacity_, options_.token_bytes);
  out.prefill_ns += wall_now_ns() - begun;
  slot.target_begun = slot.session->work();
  if (options_.hash_rows) out.row_hashes.push_back(hash_row(slot.logits.data(), slot.vocab()));
  if (options_.row_details) out.row_entropies.push_back(row_entropy(slot.row(0)));

  if (slot.running) {
    begun = wall_now_ns();
    {
      const SetWhileOpening<RunningSequence> opening(opening_, slot);
      strategy_->begin(sequence);
    }
    out.draft_prefill_ns += wall_now_ns() - begun;
  }
  slot.draft_begun = slot.draft_work();
  slot.drafts_begun = slot.work_by_draft(draft_models_.size());
  out.draft_prefill = slot.draft_begun - draft_before;
}

// Runs the target on the prompt, or copies a prefill that loops share. Afterwards the KV cache of the
// target's session holds the prompt, and slot.logits holds the logits after the prompt's last token.
void DecodeLoop::prefill(RunningSequence& slot) {
  const Request& request = slot.request;
  PrefillCost cost;
  if (reads_.prompt) {
    const PromptTaps taps{reads_.hidden, [this, &slot](const PromptStates& states) {
                            const std::int64_t begun = wall_now_ns();
                            const SetWhileOpening<RunningSequence> opening(opening_, slot);
                            strategy_->observe_prompt(slot.sequence, states);
                            slot.out.draft_prefill_ns += wall_now_ns() - begun;
                          }};
    cost = timed_prefill(*slot.session, request.prompt, slot.logits.data(), &taps);
    slot.out.observe_prompt_ns = slot.out.draft_prefill_ns;
    cost.ns -= slot.out.observe_prompt_ns;
  } else if (options_.prefills) {
    const PrefillCache::Prefilled& prefilled =
        options_.prefills->prefill(*undivided_, request.prompt, request.turn, capacity_);
    slot.session->copy(*prefilled.session);
    std::ranges::copy(prefilled.logits, slot.logits.begin());
    cost = prefilled.cost;
  } else {
    cost = timed_prefill(*slot.session, request.prompt, slot.logits.data());
  }
  slot.out.prefill_ns = cost.ns;
  slot.out.target_prefill = cost.work;
}

// Unless device_loop is off, chooses the first device executor that can run the steps of this generation. If
// none was chosen, chooses the host's executor. Throws Error if device_loop is on and no device executor can
// run them, or if the host's executor is needed and cannot run them.
void DecodeLoop::choose_executor(RunningSequence& sequence) {
  const DeviceLoop wanted = sequence.request.options.device_loop;
  std::string reason;
  if (wanted != DeviceLoop::off) {
    for (const auto& executor : on_device_[static_cast<std::size_t>(sequence.sequence.slot)]) {
      reason = executor->begin(sequence);
      if (!reason.empty()) continue;
      sequence.executor = executor.get();
      return;
    }
  }
  if (wanted == DeviceLoop::on) {
    throw Error({"option device_loop", "on",
                 "steps that a device can run or verify by itself, but here: " + reason,
                 "With \"auto\", the host runs the steps that no device can run."});
  }
  reason = on_host_->begin(sequence);
  if (!reason.empty())
    throw Error({"strategy and options of the loop", reason, "a way of verifying that fits the strategy",
                 "Verify in one pass, on one device."});
  sequence.executor = on_host_.get();
}

}  // namespace speclab
