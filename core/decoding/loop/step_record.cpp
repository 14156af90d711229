#include "core/decoding/loop/step_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace speclab {
namespace {

// The number of steps, from the start of a text, whose probes are recorded. They are enough for a figure
// of how the window of lookahead decoding fills.
constexpr int kProbedSteps = 12;

// Returns the rank of a token: the number of tokens that come before it in the order "larger first, ties by
// id".
int rank_in(std::span<const float> row, Token token) {
  const float value = row[token];
  int rank = 0;
  for (Token other = 0; other < static_cast<Token>(row.size()); ++other) {
    rank += row[other] > value || (row[other] == value && other < token) ? 1 : 0;
  }
  return rank;
}

// While this object lives, the text is as it was before the step. Logits processors need this text to compute
// a row of the step. At the end of the object's life the emitted tokens are part of the text again.
class TextBeforeStep {
 public:
  explicit TextBeforeStep(RunningSequence& sequence)
      : text_(sequence.sequence.tokens), emitted_(text_.end() - sequence.emitted, text_.end()) {
    text_.resize(text_.size() - emitted_.size());
  }
  ~TextBeforeStep() { text_.insert(text_.end(), emitted_.begin(), emitted_.end()); }
  TextBeforeStep(const TextBeforeStep&) = delete;
  TextBeforeStep& operator=(const TextBeforeStep&) = delete;

 private:
  std::vector<Token>& text_;
  std::vector<Token> emitted_;
};

// Records the entropy of the row of each emitted token, and p, q and rank of the drafted tokens that the rule
// did not test. The target's row after every drafted node is there, also after nodes that were rejected.
void record_row_details(RunningSequence& sequence, StepRecord& step) {
  const TextBeforeStep before(sequence);
  const TokenTree& tree = sequence.draft.tree;
  for (int i = 0; i < sequence.emitted; ++i) {
    const int node = i == 0 ? 0 : sequence.acceptance.path[i - 1];
    sequence.target_row(node);  // applies the logits processors
    sequence.out.row_entropies.push_back(row_entropy(sequence.row(node)));
  }
  for (int node = 1; node <= tree.drafted(); ++node) {
    DraftedToken& token = step.drafted[node - 1];
    if (token.tested) continue;
    const int parent = tree.parent(node);
    const Distribution* q = sequence.draft.q_at(node);
    token.p = sequence.target_row(parent).p->prob(token.id);
    token.q = q != nullptr ? q->prob(token.id) : 1;
    token.rank = rank_in(sequence.row(parent), token.id);
  }
}

double total_variation(std::span<const double> law, std::span<const double> p) {
  double sum = 0;
  for (std::size_t x = 0; x < law.size(); ++x) sum += std::abs(law[x] - p[x]);
  return sum / 2;
}

// KL(law || p) in nats; infinite where p is 0 and the law is not.
double kl_divergence(std::span<const double> law, std::span<const double> p) {
  double sum = 0;
  for (std::size_t x = 0; x < law.size(); ++x) {
    if (!(law[x] > 0)) continue;
    if (!(p[x] > 0)) return std::numeric_limits<double>::infinity();
    sum += law[x] * std::log(law[x] / p[x]);
  }
  return std::max(sum, 0.0);  // equal laws may give a tiny negative value by rounding
}

}  // namespace

float row_entropy(std::span<const float> logits) {
  constexpr SamplingParams kWhole{.temperature = 1, .top_k = 0, .top_p = 1};
  thread_local Distribution law;  // reused by the calls of one thread
  law.assign_logits(logits, kWhole, {}, static_cast<int>(logits.size()));
  return static_cast<float>(law.entropy());
}

void record_step(RunningSequence& sequence) {
  GenerationRecord& out = sequence.out;
  const Acceptance& acceptance = sequence.acceptance;
  const int accepted = std::min(sequence.emitted, static_cast<int>(acceptance.path.size()));
  const bool cut = sequence.emitted <= static_cast<int>(acceptance.path.size());

  StepRecord& step = sequence.step;
  step.source = sequence.draft.source;
  step.contributions.clear();
  for (const Draft::Contribution& part : sequence.draft.contributions)
    step.contributions.push_back({part.first, std::string(part.source)});
  step.reviews.clear();
  for (const Draft::Review& review : sequence.draft.reviews)
    step.reviews.push_back(
        {std::string(review.reviewer), std::string(review.source), review.tested, review.kept});
  step.accepted = accepted;
  step.emitted = sequence.emitted;
  step.rows = static_cast<int>(sequence.fed.size());
  step.parts = sequence.parts;
  for (const DevicePart& part : sequence.parts) step.rows += part.rows;
  step.draft_calls = static_cast<int>((sequence.draft_work() - sequence.draft_before).calls);
  step.pool_size = sequence.draft.pool_size;
  step.root_confidence = sequence.draft.root_confidence;
  step.tree_number = sequence.draft.tree_number;
  step.ahead = sequence.draft.ahead;
  if (sequence.limited) step.ended_by = EndedBy::length;
  else if (cut) step.ended_by = out.finish == Finish::eos ? EndedBy::eos : EndedBy::length;
  else if (sequence.draft.tree.drafted() == 0) step.ended_by = EndedBy::none;
  else if (!acceptance.bonus) step.ended_by = EndedBy::rejection;
  else step.ended_by = sequence.draft.ended_by_schedule ? EndedBy::schedule : EndedBy::bonus;

  const TokenTree& tree = sequence.draft.tree;
  step.drafted.assign(static_cast<std::size_t>(tree.drafted()), DraftedToken());
  for (int node = 1; node <= tree.drafted(); ++node) {
    DraftedToken& token = step.drafted[node - 1];
    token.id = tree.token(node);
    token.parent = tree.parent(node);
    token.confidence = sequence.draft.confidence[node];
    token.entropy = sequence.draft.entropy[node];
    if (static_cast<std::size_t>(node) < sequence.draft.predicted.size())
      token.predicted = sequence.draft.predicted[node];
  }
  const std::vector<float>& top = sequence.draft.top;
  const auto width = static_cast<std::size_t>(sequence.draft.top_width);
  step.top_width = sequence.draft.top_width;
  step.top.assign(step.drafted.size() * width, 0.0f);
  for (std::size_t i = 0; i < step.top.size() && i + width < top.size(); ++i) step.top[i] = top[i + width];
  for (const Acceptance::Tested& tested : acceptance.tested) {
    if (cut && tree.depth(tested.node) > sequence.emitted) continue;  // after the end of the text
    DraftedToken& token = step.drafted[tested.node - 1];
    token.tested = true;
    token.accepted = tested.accepted;
    token.p = tested.p;
    token.q = tested.q;
    token.expected = tested.expected;
  }
}

void look_closer(RunningSequence& sequence, int index, const LoopOptions& options) {
  thread_local std::vector<double> law, law_of_target;  // reused by the calls of one thread
  const TokenTree& tree = sequence.draft.tree;
  StepRecord& step = sequence.out.steps[static_cast<std::size_t>(index)];
  if (index < kProbedSteps) {
    step.probes.reserve(static_cast<std::size_t>(tree.size() - 1 - tree.drafted()));
    const StepRows rows = sequence.step_rows();
    for (int node = tree.drafted() + 1; node < tree.size(); ++node)
      step.probes.push_back(
          {tree.token(node), tree.parent(node), tree.wants_row(node) ? rows.best(node) : -1});
  }
  if (options.hash_rows) {
    for (int i = 0; i < sequence.emitted; ++i) {
      const std::span<const float> row = sequence.raw_logits(i == 0 ? 0 : sequence.acceptance.path[i - 1]);
      sequence.out.row_hashes.push_back(hash_row(row.data(), row.size()));
    }
  }
  if (options.details) {
    const std::vector<Acceptance::Tested>* seen = &sequence.acceptance.tested;
    if (!sequence.acceptance.want_expected && !seen->empty()) {
      sequence.judge(sequence.again);
      SPECLAB_CHECK(sequence.limited || (sequence.again.path == sequence.acceptance.path &&
                                         sequence.again.next == sequence.acceptance.next),
                    "a rule that decides differently when it is asked again: {}", sequence.rule->name);
      seen = &sequence.again.tested;
    }
    int measured = -1;  // the last parent whose law was compared
    for (const Acceptance::Tested& tested : *seen) {
      DraftedToken& token = step.drafted[tested.node - 1];
      if (!token.tested) continue;
      token.expected = tested.expected;
      const int parent = tree.parent(tested.node);
      token.rank = rank_in(sequence.row(parent), token.id);
      if (!sequence.lossy || parent == measured) continue;
      measured = parent;
      const TargetRow row = sequence.target_row(parent);
      RuleOptions here = sequence.request.options.rule_options;
      here.min_block = std::max(1, here.min_block - tree.depth(parent));  // the option counts from node 0
      sequence.rule->output_law(row, sequence.draft.q_at(tested.node), token.id, here, law);
      row.p->probabilities(law_of_target);
      token.distance = total_variation(law, law_of_target);
      token.kl = kl_divergence(law, law_of_target);
    }
  }
  if (options.row_details) record_row_details(sequence, step);
}

void show_judged_step(RunningSequence& sequence, const std::function<void(const JudgedStep&)>& on_judged) {
  const TargetRows rows = [&](int node) { return sequence.target_row(node); };
  const std::vector<int>& path = sequence.acceptance.path;
  const auto accepted = std::min(static_cast<std::size_t>(sequence.emitted), path.size());
  const TextBeforeStep before(sequence);
  on_judged({sequence.draft, rows, std::span(path).first(accepted), sequence.emitted, sequence.sequence.eos,
             sequence.sequence.coins, sequence.sequence.position()});
}

}  // namespace speclab
