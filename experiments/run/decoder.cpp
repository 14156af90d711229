#include "experiments/run/decoder.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/sha256.h"

namespace speclab {
namespace {

/// How many decode loops may be open at a time, besides those that hold the memory of a case. Each loop holds
/// a KV cache of the target and other buffers.
constexpr long kMostOpen = 12;

/// The prompt's part of a coin's address. It depends on the prompt's id alone, not on the other prompts.
std::uint64_t prompt_number(const std::string& id) {
  return std::stoull(sha256_hex(id).substr(0, 15), nullptr, 16);
}

}  // namespace

GenerationOptions Decoder::generation_for(const CaseSpec& spec, const PromptSpec& prompt) {
  StrategyChoice strategy = spec.strategy;
  GenerationOptions generation = spec.generation;
  apply_prompt_options(prompt, strategy, generation);
  return generation;
}

Decoder::Decoder(const Experiment& experiment, const ModelSet& models, CostsByDrafts costs)
    : experiment_(experiment), models_(models), costs_(std::move(costs)) {
  int most_tokens = 0;
  for (const CaseSpec& spec : experiment.cases) {
    for (const PromptSpec& prompt : experiment.prompts)
      most_tokens = std::max(most_tokens, generation_for(spec, prompt).max_tokens);
  }
  const long context = models.target()->config().context;
  long longest = 0, sum = 0;
  for (const PromptSpec& prompt : experiment.prompts) {
    Conversation conversation(models, prompt, experiment.system);
    const long first = static_cast<long>(conversation.tokens().size());
    long rest = 0;
    for (std::size_t turn = 1; turn < prompt.turns.size(); ++turn) {
      // A byte is at most one token, and the template adds a few tokens.
      rest += static_cast<long>(prompt.turns[turn].size()) + 32;
    }
    longest = std::max(
        longest, first + rest + static_cast<long>(most_tokens) * static_cast<long>(prompt.turns.size()));
    sum += std::min(first + most_tokens / 2, context - 1);
  }
  constexpr long kMargin = 64;  // for drafts that reach past the last token
  capacity_ = static_cast<int>(std::min(longest + kMargin, context));
  mean_context_ = static_cast<int>(sum / static_cast<long>(experiment.prompts.size()));
  loops_.resize(2 * experiment.cases.size());
  for (std::size_t i = 0; i < experiment.cases.size(); ++i) {
    const CaseSpec& spec = experiment.cases[i];
    loops_[i].stays = spec.strategy.carries_memory();
    try {
      loop_for(spec, false);
    } catch (const Error& error) {
      throw Error(
          {.what = spec.where + " (" + spec.id + ")", .got = error.what(), .expected = "", .advice = ""});
    }
  }
}

std::unique_ptr<DecodeLoop> Decoder::make_loop(const CaseSpec& spec, const StrategyChoice& strategy) const {
  LoopOptions options;
  options.capacity = capacity_;
  options.verify = spec.verify;
  options.devices = spec.devices;
  options.row_details = experiment_.row_details;
  if (const auto costs = costs_.find(spec.drafts); costs != costs_.end()) options.costs = costs->second;
  if (experiment_.share_prefills) options.prefills = prefills_;
  if (const auto& tokenizer = models_.tokenizer()) {
    options.token_bytes = [tokenizer = *tokenizer](Token token, std::string& text) {
      text += tokenizer.token_bytes(token);
    };
  }
  options.on_emit = [this](int, const StepRecord& step, TokenSpan) {
    if (job_->after_step && step.emitted > 0)
      job_->after_step(step);  // on_emit gets an empty step after prefill
    if (job_->interrupted && job_->interrupted()) stop_.request_stop();
  };
  if (experiment_.bounds) {
    options.on_judged = [this](const JudgedStep& step) {
      if (job_->on_judged) job_->on_judged(step);
    };
  }
  return std::make_unique<DecodeLoop>(models_.target(), models_.drafts(spec.drafts), strategy, options);
}

DecodeLoop& Decoder::loop_for(const CaseSpec& spec, bool apart) {
  auto index = static_cast<std::size_t>(&spec - experiment_.cases.data());
  SPECLAB_CHECK(index < experiment_.cases.size(), "a case of another experiment");
  if (apart && loops_[index].stays) index += experiment_.cases.size();
  Open& own = loops_[index];
  if (!own.loop) {
    const auto may_close = [](const Open& entry) { return entry.loop != nullptr && !entry.stays; };
    if (!own.stays && std::count_if(loops_.begin(), loops_.end(), may_close) >= kMostOpen) {
      const auto older = [&](const Open& a, const Open& b) {
        return may_close(a) && (!may_close(b) || a.last_use < b.last_use);
      };
      std::min_element(loops_.begin(), loops_.end(), older)->loop.reset();
    }
    own.loop = make_loop(spec, spec.strategy);
  }
  own.last_use = ++uses_;
  return *own.loop;
}

void Decoder::forget(const CaseSpec& spec) {
  const auto index = static_cast<std::size_t>(&spec - experiment_.cases.data());
  SPECLAB_CHECK(index < experiment_.cases.size(), "a case of another experiment");
  loops_[index].loop.reset();
}

std::optional<std::vector<GenerationRecord>> Decoder::decode(const Job& job) {
  job_ = &job;
  stop_ = std::stop_source();
  StrategyChoice strategy = job.spec->strategy;
  GenerationOptions generation = job.spec->generation;
  const bool changes_strategy = apply_prompt_options(*job.prompt, strategy, generation);
  if (job.max_tokens > 0) generation.max_tokens = std::min(generation.max_tokens, job.max_tokens);
  // A strategy takes its options when it is created, so a prompt that changes an option gets its own loop.
  std::unique_ptr<DecodeLoop> own;
  if (changes_strategy) own = make_loop(*job.spec, strategy);
  DecodeLoop& loop = own ? *own : loop_for(*job.spec, job.apart);
  Conversation conversation(models_, *job.prompt, experiment_.system);
  std::vector<GenerationRecord> turns;
  while (conversation.turn() < conversation.turns()) {
    if (job.interrupted && job.interrupted()) return std::nullopt;
    const int turn = conversation.turn();
    Request request;
    request.prompt = conversation.tokens();
    request.options = generation;
    request.coins = Coins(job.seed, prompt_number(job.prompt->id));
    request.turn = turn;
    request.eos = models_.end_tokens();
    if (job.reference && static_cast<std::size_t>(turn) < job.reference->turns.size()) {
      request.reference = job.reference->turns[static_cast<std::size_t>(turn)].tokens;
    }
    turns.push_back(loop.run(request, stop_.get_token()));
    if (turns.back().finish == Finish::cancelled) return std::nullopt;
    turns.back().context = conversation.tokens();
    conversation.answer(turns.back().tokens);
  }
  return turns;
}

}  // namespace speclab
