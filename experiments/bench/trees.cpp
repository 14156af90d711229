// Measures what a tree costs besides its forwards: the bookkeeping of trees, masks and commits in real
// decoding, and the passes over the vocabulary that judging a node takes.
//
//     speclab_bench --model MODEL --draft DRAFT --benchmark_filter=trees
//
// Without --draft there is only trees/judge.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "core/base/options_json.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/measure/clock.h"
#include "core/measure/stats.h"
#include "experiments/bench/bench.h"
#include "experiments/run/forward_times.h"

namespace speclab::bench {
namespace {

using nlohmann::json;

/// A measured rule and the drafts that it is made for.
struct JudgedRule {
  const char* name;
  /// True: the children of a node are drawn independently. False: without replacement. Independent children
  /// are all equal at temperature 0, so a rule for them is measured at temperature 1 only.
  bool independent;
  const char* tree;  ///< options of a tree of 63 drafted tokens
};
constexpr JudgedRule kJudgedRules[] = {
    {"rejection", false, R"({"widths": [9, 2, 2]})"},
    {"traversal", false, R"({"widths": [9, 2, 2]})"},
    {"k_seq", true, R"({"widths": [9, 2, 2], "children": "independent"})"},
    {"multi_path_block", true, R"({"sequences": 9, "length": 7})"},
};

/// Decodes with trees of 64 nodes: 63 drafted tokens and the pending one. `overhead` is the share of
/// a step that is neither drafting nor the target's forward: `accept_us` (rows of logits into distributions,
/// the rule) and `other_us` (trees, masks, commit, record). All are medians over the steps.
void add_tree_steps(const Setting& setting, const JudgedRule& rule, double temperature) {
  add(
      fmt::format("trees/step/rule:{}/nodes:64/temperature:{:.0f}", rule.name, temperature),
      [=](benchmark::State& state) {
        constexpr int kPrompt = 128, kTokens = 64;
        StrategyChoice choice(tree_strategy());
        json tree = json::parse(rule.tree);
        tree["budget"] = "fixed";
        parse_options(choice.fields(), tree, "trees/step");
        const auto target = setting.models->target();
        DecodeLoop loop(target, setting.models->draft("draft"), choice,
                        {.capacity = kPrompt + kTokens + 1, .hash_rows = false, .details = false});
        const std::vector<Token> prompt = timed_context(*target, kPrompt);
        Request request;
        request.prompt = prompt;
        request.options.max_tokens = kTokens;
        request.options.ignore_eos = true;
        request.options.sampling.temperature = temperature;
        request.options.rule = rule.name;
        for (auto _ : state) {
          const GenerationRecord record = loop.run(request);
          std::vector<double> accept, other, share, step_time;
          for (std::size_t i = 1; i < record.steps.size(); ++i) {  // buffers grow in the first step
            const PhaseTimes& times = record.steps[i].times;
            accept.push_back(static_cast<double>(times[Phase::accept]));
            other.push_back(static_cast<double>(times[Phase::other]));
            step_time.push_back(static_cast<double>(times.total()));
            share.push_back((accept.back() + other.back()) / step_time.back());
          }
          if (share.empty()) {
            state.SkipWithError("the text has a single step");
            break;
          }
          state.SetIterationTime(stats::median(step_time) * 1e-9);
          state.counters["accept_us"] = stats::median(accept) * 1e-3;
          state.counters["other_us"] = stats::median(other) * 1e-3;
          state.counters["overhead"] = stats::median(share);
          state.counters["rows"] = record.steps[1].rows;
        }
      },
      Clock::kManual)
      ->Iterations(1);
}

/// Times what one visited node with this many children costs: the rows of logits that the rule asks for
/// become distributions, and the rule judges the children. The draft is so bad that nearly every child is
/// rejected. `passes` is this time in units of one sum over a row.
void add_judging(const Setting& setting, const JudgedRule& judge, int children, double temperature) {
  add(
      fmt::format("trees/judge/rule:{}/children:{}/temperature:{:.0f}", judge.name, children, temperature),
      [=](benchmark::State& state) {
        const int vocab = setting.models->target()->config().vocab;
        std::mt19937 random(1);
        std::vector<float> drafted(static_cast<std::size_t>(vocab)), judged = drafted;
        for (float& logit : drafted) logit = static_cast<float>(random() % 1024) / 128;
        for (std::size_t i = 0; i < judged.size(); ++i) judged[i] = 8 - drafted[i];
        const SamplingParams sampling{.temperature = temperature};
        const Coins coins(1, 1);
        Draft draft;
        draft.reset(0);
        const auto draw = [&](const Distribution& q) {
          return q.sample(coins, {0, Purpose::draft, static_cast<std::uint32_t>(draft.tree.size())});
        };
        if (judge.independent) {
          int index = -1;
          Distribution& q = draft.new_q(&index);
          q.assign_logits(drafted, sampling, {}, vocab);
          for (int i = 0; i < children; ++i) draft.add(draw(q), 0, index);
        } else {
          SiblingDraw().add(draft, 0, children, drafted, sampling, {}, vocab, draw);
        }
        const AcceptanceRule& rule = find_acceptance_rule(judge.name);
        // As in decoding, a row becomes a distribution once in a step, when the rule first asks for it.
        std::vector<Distribution> p(static_cast<std::size_t>(draft.tree.size()));
        std::vector<char> known(p.size());
        Acceptance acceptance;
        acceptance.want_expected = false;
        const TargetRows rows = [&](int node) -> TargetRow {
          const auto at = static_cast<std::size_t>(node);
          if (known[at] == 0) p[at].assign_logits(judged, sampling, {}, vocab);
          known[at] = 1;
          return {&p[at], &p[at]};
        };
        std::int64_t position = 0;
        double tested = 0, judging_ns = 0, sum_ns = 0;
        for (auto _ : state) {
          std::ranges::fill(known, 0);
          const std::int64_t begin = wall_now_ns();
          accept(rule, {}, draft, rows, coins, ++position, acceptance);
          const std::int64_t end = wall_now_ns();
          benchmark::DoNotOptimize(row_kernels::sum(judged));
          judging_ns += static_cast<double>(end - begin), sum_ns += static_cast<double>(wall_now_ns() - end);
          tested += static_cast<double>(acceptance.tested.size());
          state.SetIterationTime(static_cast<double>(end - begin) * 1e-9);
        }
        state.counters["tested"] = tested / static_cast<double>(state.iterations());
        state.counters["passes"] = judging_ns / sum_ns;
      },
      Clock::kManual);
}

}  // namespace

void add_trees(const Setting& setting) {
  for (const JudgedRule& rule : kJudgedRules) {
    for (const double temperature : {0., 1.}) {
      if (rule.independent && !(temperature > 0)) continue;
      if (setting.has_draft) add_tree_steps(setting, rule, temperature);
      for (const int children : {1, 2, 4, 8}) add_judging(setting, rule, children, temperature);
    }
  }
}

}  // namespace speclab::bench
