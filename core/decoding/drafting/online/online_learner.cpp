#include "core/decoding/drafting/online/online_learner.h"

#include <limits>

#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab {

void OnlineOptions::fields(OptionVisitor& visit) {
  visit("objective", objective,
        {{DistillObjective::forward_kl, "forward_kl"},
         {DistillObjective::reverse_kl, "reverse_kl"},
         {DistillObjective::jsd, "jsd"},
         {DistillObjective::total_variation, "total_variation"}},
        "distance between the target's p and the draft's q that updates make smaller. forward_kl: "
        "sum p log(p / q); reverse_kl: sum q log(q / p); jsd: their mean distance from (p + q) / 2; "
        "total_variation: 1 - sum min(p, q)");
  visit("learning_rate", learning_rate, Range<double>{0, 2},
        "at a learned position, an update lowers the draft's logits by learning_rate times the gradient of "
        "the objective; 0: the draft stays as it is");
  visit("clip", clip, Range<double>{0, 100, true},
        "largest Euclidean norm of a gradient; longer ones are shortened to it");
  visit("least_gradient", least_gradient, Range<double>{0, 1},
        "entries of a gradient below this are left out, so that few tokens need a correction");
  visit("update_every", update_every, Range<int>{1, 1'000'000},
        "steps with a draft between two updates; an update learns from the positions that were rejected "
        "since the last one");
  visit("buffer", buffer, Range<int>{1, 4096},
        "largest number of rejected positions that an update learns from; the newest ones");
  visit(
      "corrected_tokens", corrected_tokens, Range<int>{1, 1 << 20},
      "largest number of tokens whose logits are corrected; beyond it, the token that was added longest ago "
      "loses its correction");
}

OnlineLearner::OnlineLearner(const OnlineOptions& options, const ModelConfig& draft)
    : options_(options),
      ids_(draft.head_ids),
      vocab_(static_cast<std::size_t>(draft.vocab)),
      correction_(draft.hidden, draft.head_rows(), options.corrected_tokens),
      kept_(static_cast<std::size_t>(options.buffer)) {}

void OnlineLearner::forget() {
  correction_.clear();
  first_ = count_ = 0;
  steps_ = 0;
}

void OnlineLearner::correct(int depth, std::span<const float> state, std::span<float> logits) {
  const auto at = static_cast<std::size_t>(depth - 1);
  if (drafted_.size() <= at) drafted_.resize(at + 1);
  drafted_[at].state.assign(state.begin(), state.end());
  drafted_[at].logits.assign(logits.begin(), logits.end());
  correction_.apply(state, logits);
}

void OnlineLearner::observe(int drafted, int accepted, std::span<const float> target_logits) {
  if (drafted == 0) return;
  SPECLAB_CHECK(accepted >= 0 && accepted <= drafted && drafted <= static_cast<int>(drafted_.size()),
                "{} of {} tokens accepted, of a chain of at most {}", accepted, drafted, drafted_.size());
  if (accepted < drafted) keep(drafted_[static_cast<std::size_t>(accepted)], target_logits);
  if (++steps_ < options_.update_every) return;
  steps_ = 0;
  learn();
}

// A position is left out if the target gives no mass to any token of the draft, or if the target's row has a
// NaN or +infinity at one of these tokens.
void OnlineLearner::keep(const Drafted& drafted, std::span<const float> target_logits) {
  SPECLAB_CHECK(target_logits.size() == vocab_, "a row of {} logits for a vocabulary of {}",
                target_logits.size(), vocab_);
  std::span<const float> row = target_logits;
  if (!ids_.empty()) {
    row_.resize(ids_.size());
    for (std::size_t i = 0; i < ids_.size(); ++i) row_[i] = target_logits[static_cast<std::size_t>(ids_[i])];
    row = row_;
  }
  if (!softmax(row, p_)) return;
  Kept& to = kept_[(first_ + count_) % kept_.size()];  // in a full ring, the oldest one
  if (count_ < kept_.size()) ++count_;
  else first_ = (first_ + 1) % kept_.size();
  to.drafted.state.assign(drafted.state.begin(), drafted.state.end());
  to.drafted.logits.assign(drafted.logits.begin(), drafted.logits.end());
  to.p.assign(p_.begin(), p_.end());
}

void OnlineLearner::learn() {
  const LogitsCorrection::Step step{options_.learning_rate, options_.clip, options_.least_gradient};
  for (; count_ > 0; --count_, first_ = (first_ + 1) % kept_.size()) {
    const Kept& position = kept_[first_];
    logits_.assign(position.drafted.logits.begin(), position.drafted.logits.end());
    correction_.apply(position.drafted.state, logits_);
    if (!softmax(logits_, q_)) continue;
    gradient_.resize(q_.size());
    distillation_gradient(options_.objective, position.p, q_, gradient_);
    correction_.descend(position.drafted.state, gradient_, step);
    ++descents_;
  }
  first_ = 0;
}

// Returns false, and leaves `out` as it is, if a logit is NaN or +infinity, or if all are -infinity.
bool OnlineLearner::softmax(std::span<const float> logits, std::vector<float>& out) {
  bool valid = false;
  const float most = row_kernels::max(logits, &valid);
  if (!valid || most == -std::numeric_limits<float>::infinity()) return false;
  out.resize(logits.size());
  const double sum = row_kernels::exp_row(logits, most, 1, out);
  for (float& weight : out) weight = static_cast<float>(static_cast<double>(weight) / sum);
  return true;
}

}  // namespace speclab
