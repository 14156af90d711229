#include "core/spec/decode_loop.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/spec/processors.h"

namespace speclab {
namespace {

constexpr int kScratch = 128;
constexpr int kScratchOfPrefixes = 1024;

PassCounts counts(const Work& work) {
  return {work.calls, work.rows, work.logit_rows, work.keys, work.flops, work.weight_bytes, work.kv_bytes};
}

bool same_as_raw(const SamplingParams& sampling) {
  return sampling.temperature == 1 && sampling.top_k == 0 && sampling.top_p >= 1;
}

// Best first, ties by id: how many tokens come before this one.
int rank_in(std::span<const float> row, Token token) {
  const float value = row[token];
  int rank = 0;
  for (Token other = 0; other < static_cast<Token>(row.size()); ++other) {
    rank += row[other] > value || (row[other] == value && other < token) ? 1 : 0;
  }
  return rank;
}

// Finds stop strings in a text that grows token by token; looks at new bytes only.
class StopFinder {
 public:
  void reset(const std::vector<std::string>& stops) {
    stops_ = &stops;
    tail_.clear();
    longest_ = 0;
    for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
  }
  bool active() const { return longest_ > 0; }
  bool push(Token token, const std::function<void(Token, std::string&)>& bytes) {
    bytes(token, tail_);
    for (const std::string& stop : *stops_) {
      if (!stop.empty() && tail_.find(stop) != std::string::npos) return true;
    }
    if (tail_.size() >= longest_)
      tail_.erase(0, tail_.size() - (longest_ - 1));  // a match may end in the next token
    return false;
  }

 private:
  const std::vector<std::string>* stops_ = nullptr;
  std::string tail_;
  std::size_t longest_ = 0;
};

}  // namespace

struct DecodeLoop::Slot {
  std::unique_ptr<Session> session;
  std::vector<const Session*> draft_sessions;  // owned by the strategy
  const Request* request = nullptr;
  const AcceptanceRule* rule = nullptr;
  bool lossy = false;
  std::unique_ptr<LogitsProcessors> processors;
  Sequence sequence;
  StopFinder stops;
  GenerationRecord out;
  bool running = false;

  // Of the step in progress:
  Draft draft;
  Acceptance acceptance;
  std::vector<float> logits;          // [nodes, vocab]
  std::vector<Token> fed;             // [rows fed]
  std::vector<std::int32_t> parents;  // [rows fed]
  std::vector<std::int32_t> rows;     // [nodes], ascending: the fed row whose logits are those of the node
  std::vector<int> keep;
  std::vector<Distribution> p, raw;           // [nodes], filled when the walk reaches them
  std::vector<std::vector<float>> processed;  // [nodes], rows after the processors
  std::vector<char> ready;
  std::vector<int> path;
  std::vector<Token> prefix;
  std::vector<double> law, law_of_target;
  int emitted = 0;
  Work draft_before;               // this step
  Work target_begun, draft_begun;  // decoding, i.e. what prefill left

  int vocab() const { return session->model().config().vocab; }
  std::span<const float> raw_logits(int node) const {
    return {logits.data() + static_cast<std::size_t>(node) * vocab(), static_cast<std::size_t>(vocab())};
  }
  // The row as it is sampled from: processors see the text up to and including the node.
  std::span<const float> row(int node) const {
    return processors ? std::span<const float>(processed[node]) : raw_logits(node);
  }

  Work draft_work() const {
    Work sum;
    for (const Session* session : draft_sessions) sum += session->work();
    return sum;
  }

  void expect_rows(int nodes) {
    logits.resize(std::max(logits.size(), static_cast<std::size_t>(nodes) * vocab()));
    if (static_cast<int>(p.size()) < nodes) {
      p.resize(nodes);
      raw.resize(nodes);
      processed.resize(nodes);
    }
    ready.assign(nodes, 0);
  }

  TargetRow target_row(int node) {
    const bool wants_raw = lossy && !same_as_raw(sequence.sampling);
    if (!ready[node]) {
      if (processors) {
        draft.tree.path_to(node, path);
        prefix.clear();
        for (const int on_path : path) prefix.push_back(draft.tree.token(on_path));
        processed[node].resize(vocab());
        processors->apply(raw_logits(node), {}, sequence.tokens, prefix, processed[node]);
      }
      p[node].assign_logits(row(node), sequence.sampling, {}, vocab());
      if (wants_raw)
        raw[node].assign_logits(row(node), SamplingParams{.temperature = 1, .top_k = 0, .top_p = 1}, {},
                                vocab());
      ready[node] = 1;
    }
    return {&p[node], wants_raw ? &raw[node] : &p[node]};
  }

  // Takes one token into the text. False: the text ends with it.
  bool take(Token token, int capacity, const std::function<void(Token, std::string&)>& bytes) {
    const GenerationOptions& options = request->options;
    sequence.tokens.push_back(token);
    out.tokens.push_back(token);
    running = false;
    const bool stopped = stops.active() && stops.push(token, bytes);
    if (!options.ignore_eos &&
        std::find(request->eos.begin(), request->eos.end(), token) != request->eos.end())
      out.finish = Finish::eos;
    else if (stopped)
      out.finish = Finish::stop;
    else if (static_cast<int>(out.tokens.size()) >= options.max_tokens)
      out.finish = Finish::length;
    else if (sequence.position() >= capacity)
      out.finish = Finish::context;  // it could not be fed
    else
      running = true;
    return running;
  }
};

DecodeLoop::DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
                       const StrategyChoice& strategy, LoopOptions options)
    : target_(std::move(target)), draft_(std::move(draft)), options_(std::move(options)) {
  SPECLAB_CHECK(target_ != nullptr && options_.batch >= 1, "target {}, batch {}", target_ != nullptr,
                options_.batch);
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
  scratch_ = options_.scratch > 0         ? options_.scratch
             : options_.batch_of_prefixes ? kScratchOfPrefixes
                                          : kScratch;
  for (int i = 0; i < options_.batch; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->session = target_->open(capacity_, scratch_);
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
}

DecodeLoop::~DecodeLoop() = default;

const Model& DecodeLoop::target() const {
  return *target_;
}
int DecodeLoop::capacity() const {
  return capacity_;
}

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
    target_->forward(feeds_);
    clock.enter(Phase::accept);
    for (Slot* slot : running_) verify(*slot);
    clock.enter(Phase::other);
    outcomes_.clear();
    for (Slot* slot : running_) {
      emit(*slot);
      commit(*slot);
      outcomes_.push_back({&slot->draft, &slot->acceptance, slot->emitted});
    }
    clock.enter(Phase::draft);
    strategy_->observe(sequences_, outcomes_);
    clock.enter(Phase::other);
    for (Slot* slot : running_) record(*slot);
    const PhaseTimes times = clock.lap();
    const std::int64_t cpu = cpu_now_ns() - cpu_before;
    for (Slot* slot : running_) {  // outside the clock
      slot->out.steps.back().times = times;
      slot->out.decode_ns += times.total();
      slot->out.cpu_ns += cpu;
      look_closer(*slot);
    }
    std::erase_if(running_, [](const Slot* slot) { return !slot->running; });
  }
  std::vector<GenerationRecord> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Slot& slot = *slots_[i];
    slot.out.target = counts(slot.session->work() - slot.target_begun);
    slot.out.draft = counts(slot.draft_work() - slot.draft_begun);
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

  GenerationRecord& out = slot.out;
  out = GenerationRecord();
  out.context_length = prompt_length;
  out.tokens.reserve(options.max_tokens);
  out.steps.reserve(options.max_tokens);
  const Work target_before = slot.session->work();
  std::int64_t begun = wall_now_ns();
  slot.session->rewind(0);
  slot.draft.reset(sequence.tokens.back());  // no path: the row after the prompt is that of node 0
  slot.expect_rows(1);
  slot.session->prefill(request.prompt, slot.logits.data());
  const Token first =
      slot.rule->bonus(slot.target_row(0), sequence.coins, prompt_length, options.rule_options);
  slot.take(first, capacity_, options_.token_bytes);
  out.prefill_ns = wall_now_ns() - begun;
  slot.target_begun = slot.session->work();
  out.target_prefill = counts(slot.target_begun - target_before);
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
  out.draft_prefill = counts(slot.draft_begun - draft_before);
  if (options_.on_emit) options_.on_emit(sequence.slot, StepRecord(), out.tokens);
}

void DecodeLoop::lay_out_feeds() {
  feeds_.clear();
  for (Slot* slot : running_) {
    const TokenTree& tree = slot->draft.tree;
    const int nodes = tree.size();
    SPECLAB_CHECK(tree.max_depth() <= slot->sequence.depth_limit || nodes == 1,
                  "a draft of depth {} where {} is the limit", tree.max_depth(), slot->sequence.depth_limit);
    slot->expect_rows(nodes);
    slot->fed.clear();
    slot->parents.clear();
    slot->rows.resize(nodes);
    if (options_.batch_of_prefixes) {
      for (int node = 0; node < nodes; ++node) {
        tree.path_to(node, slot->path);
        slot->fed.push_back(tree.token(0));
        slot->parents.push_back(-1);
        for (const int on_path : slot->path) {
          slot->parents.push_back(static_cast<std::int32_t>(slot->fed.size()) - 1);
          slot->fed.push_back(tree.token(on_path));
        }
        slot->rows[node] = static_cast<std::int32_t>(slot->fed.size()) - 1;
      }
    } else {
      slot->fed.assign(tree.tokens().begin(), tree.tokens().end());
      slot->parents.assign(tree.parents().begin(), tree.parents().end());
      std::iota(slot->rows.begin(), slot->rows.end(), 0);
    }
    if (static_cast<int>(slot->fed.size()) > scratch_) {
      throw Error({"draft", fmt::format("{} rows to verify", slot->fed.size()),
                   fmt::format("at most {} in flight", scratch_),
                   options_.batch_of_prefixes ? "Draft less, or verify in one pass." : "Draft less."});
    }
    feeds_.push_back(
        {slot->session.get(), slot->fed, slot->parents, slot->rows, slot->logits.data(), nullptr});
  }
}

void DecodeLoop::verify(Slot& slot) {
  Slot* const captured = &slot;  // one pointer, so that the function object needs no allocation
  accept(
      *slot.rule, slot.request->options.rule_options, slot.draft,
      [captured](int node) { return captured->target_row(node); }, slot.sequence.coins,
      slot.sequence.position(), slot.acceptance);
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
    const int last = slot.rows[deepest];
    slot.keep.clear();
    for (int row = last - (slot.emitted - 1); row <= last; ++row) slot.keep.push_back(row);
  } else {
    slot.keep.insert(slot.keep.end(), slot.acceptance.path.begin(),
                     slot.acceptance.path.begin() + (slot.emitted - 1));
  }
  slot.session->commit(slot.keep);
}

void DecodeLoop::record(Slot& slot) {
  GenerationRecord& out = slot.out;
  const Acceptance& acceptance = slot.acceptance;
  const int accepted = std::min(slot.emitted, static_cast<int>(acceptance.path.size()));
  const bool cut = slot.emitted <= static_cast<int>(acceptance.path.size());

  StepRecord& step = out.steps.emplace_back();
  step.source = slot.draft.source;
  step.accepted = accepted;
  step.emitted = slot.emitted;
  step.rows = static_cast<int>(slot.fed.size());
  step.draft_calls = static_cast<int>((slot.draft_work() - slot.draft_before).calls);
  if (cut)
    step.ended_by = out.finish == Finish::eos ? EndedBy::eos : EndedBy::length;
  else if (slot.draft.tree.drafted() == 0)
    step.ended_by = EndedBy::none;
  else if (!acceptance.bonus)
    step.ended_by = EndedBy::rejection;
  else
    step.ended_by = slot.draft.ended_by_schedule ? EndedBy::schedule : EndedBy::bonus;

  const TokenTree& tree = slot.draft.tree;
  step.drafted.resize(tree.drafted());
  for (int node = 1; node < tree.size(); ++node) {
    DraftedToken& token = step.drafted[node - 1];
    token.id = tree.token(node);
    token.parent = tree.parent(node);
    token.confidence = slot.draft.confidence[node];
  }
  for (const Acceptance::Tested& tested : acceptance.tested) {
    if (cut && tree.depth(tested.node) > slot.emitted) continue;  // behind the end of the text
    DraftedToken& token = step.drafted[tested.node - 1];
    token.tested = true;
    token.accepted = tested.accepted;
    token.p = tested.p;
    token.q = tested.q;
    token.expected = tested.expected;
  }
}

// What costs a pass over the vocabulary and would not be done by anyone who only wants the text.
void DecodeLoop::look_closer(Slot& slot) {
  const TokenTree& tree = slot.draft.tree;
  StepRecord& step = slot.out.steps.back();
  if (options_.hash_rows) {
    for (int i = 0; i < slot.emitted; ++i) {
      const std::span<const float> row = slot.raw_logits(i == 0 ? 0 : slot.acceptance.path[i - 1]);
      slot.out.row_hashes.push_back(hash_row(row.data(), row.size()));
    }
  }
  if (options_.details) {
    int measured = -1;  // the last parent whose law was compared
    for (const Acceptance::Tested& tested : slot.acceptance.tested) {
      DraftedToken& token = step.drafted[tested.node - 1];
      if (!token.tested) continue;
      const int parent = tree.parent(tested.node);
      token.rank = rank_in(slot.row(parent), token.id);
      if (!slot.lossy || parent == measured) continue;
      measured = parent;
      const TargetRow row = slot.target_row(parent);
      slot.rule->output_law(row, slot.draft.q_at(tested.node), token.id, slot.request->options.rule_options,
                            slot.law);
      row.p->probabilities(slot.law_of_target);
      double distance = 0;
      for (std::size_t x = 0; x < slot.law.size(); ++x)
        distance += std::abs(slot.law[x] - slot.law_of_target[x]);
      token.distance = distance / 2;
    }
  }
  if (options_.on_emit) {
    options_.on_emit(slot.sequence.slot, step,
                     TokenSpan(slot.out.tokens).last(static_cast<std::size_t>(slot.emitted)));
  }
}

}  // namespace speclab
