#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "experiments/analysis/compare/compare.h"

namespace speclab::fixtures {

/// How strongly the times of one run vary, as standard deviations of logarithms.
struct MadeNoise {
  double line = .02;  ///< from line to line: the machine is faster or slower for a while
  double step = .10;  ///< from step to step within a line
  double run = .003;  ///< from run to run
};
/// The noise between repeats of the same lines in a study of 23 cases on a shared machine with two cores: .09
/// from line to line, .10 from step to step. Three runs within an hour differed by .02.
inline constexpr MadeNoise kSharedMachine{.line = .09, .step = .10, .run = .02};

/// A run of greedy decoding: an autoregressive case and a case that drafts chains. Its lines hold tokens,
/// steps and times as a decode loop records them. All runs have the same texts. A draft is accepted up to the
/// first position whose number u, which belongs to the prompt and the position, is at least alpha. So a lower
/// alpha loses tokens at some positions and gains none.
struct NoisyRun {
  std::uint64_t seed = 1;  ///< of the noise
  MadeNoise noise = {};
  int prompts = 80, repeats = 3, tokens = 96, gamma = 4;
  double alpha = .7;
  /// Slowdowns: the share of the time of a step of the case that is added to one part of each step.
  double slow_draft = 0, slow_target = 0, slow_bookkeeping = 0;
  double reference = 1;  ///< factor of the times of the autoregressive case
};

inline constexpr const char* kNoisyCase = "speculative_sampling/gamma=4";
inline constexpr double kDraftMs = .35, kVerifyMs = 11, kForwardMs = 9.5, kAcceptMs = .05, kOtherMs = .1;

class NoisyRunMaker {
 public:
  explicit NoisyRunMaker(const NoisyRun& made) : made_(made), random_(made.seed) {
    run_factor_ = factor(made.noise.run);
  }

  ComparedRun make() {
    using nlohmann::json;
    ComparedRun out;
    out.run.environment = {
        {"cpu", {{"model", "none"}}}, {"backend", "cpu"},
        {"numerics", "f32"},          {"threads", 2},
        {"binary_sha256", "1"},       {"models", {{"target", {{"sha256", "1"}, {"name", "m"}}}}}};
    out.run.config = {{"name", "noisy"},          {"description", ""}, {"repeats", made_.repeats},
                      {"prompts", json::array()}, {"seeds", {1}},      {"cases", json::array()}};
    for (int prompt = 0; prompt < made_.prompts; ++prompt)
      out.run.config["prompts"].push_back({{"id", std::to_string(prompt)}, {"category", ""}});
    const auto reference = make_case("autoregressive", "autoregressive", nullptr, false);
    const auto drafting = make_case(kNoisyCase, "speculative_sampling", "autoregressive", true);
    drafting->reference = reference;
    out.run.cases = {reference, drafting};
    out.summary = {{"complete", true}, {"cases", json::array()}};
    for (const auto& data : out.run.cases) {
      out.run.config["cases"].push_back(data->config);
      out.summary["cases"].push_back({{"id", data->id()}, {"errors", 0}, {"metrics", json::object()}});
    }
    return out;
  }

 private:
  double factor(double deviation) { return std::exp(deviation * normal_(random_)); }

  /// A number in [0, 1) that depends on the prompt and the position alone.
  static double number_at(int prompt, int position) {
    std::uint64_t x = static_cast<std::uint64_t>(prompt) * 1'000'003 + static_cast<std::uint64_t>(position);
    for (const std::uint64_t multiplier : {0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL}) {
      x = (x ^ (x >> 30)) * multiplier;
      x ^= x >> 27;
    }
    return static_cast<double>(x >> 11) * 0x1p-53;
  }

  /// Alpha of a prompt: prompts differ, and their mean is about made_.alpha.
  double alpha_of(int prompt) const { return made_.alpha + .3 * (number_at(prompt, -1) - .5); }

  StepRecord step_at(int prompt, int position) const {
    StepRecord step;
    const int left = made_.tokens - position;
    while (step.accepted < std::min(made_.gamma, left) &&
           number_at(prompt, position + step.accepted) < alpha_of(prompt))
      ++step.accepted;
    step.emitted = std::min(step.accepted + 1, left);
    step.source = "draft";
    step.rows = made_.gamma + 1;
    step.draft_calls = made_.gamma;
    step.ended_by = step.emitted == step.accepted  ? EndedBy::length
                    : step.accepted == made_.gamma ? EndedBy::bonus
                                                   : EndedBy::rejection;
    for (int i = 0; i < made_.gamma; ++i) {
      DraftedToken token;
      token.id = 5;
      token.parent = i;
      token.tested = i <= step.accepted;
      token.accepted = i < step.accepted;
      if (token.tested) token.p = token.q = .5;
      step.drafted.push_back(token);
    }
    return step;
  }

  void add_times(StepRecord& step, double line_factor, bool drafting) {
    const double step_factor = line_factor * factor(made_.noise.step);
    const auto ns = [&](double ms) { return static_cast<std::int64_t>(1e6 * ms * step_factor); };
    double draft = 0, target = kForwardMs * made_.reference, accept = kAcceptMs, other = kOtherMs;
    if (drafting) {
      draft = kDraftMs * made_.gamma, target = kVerifyMs;
      const double whole = draft + target + accept + other;
      draft += made_.slow_draft * whole;
      target += made_.slow_target * whole;
      other += made_.slow_bookkeeping * whole;
    }
    step.times.ns = {ns(draft), ns(target), ns(accept), ns(other)};
  }

  LineRecord make_line(const std::string& id, int prompt, int repeat, bool drafting) {
    LineRecord line;
    line.case_id = id;
    line.prompt = std::to_string(prompt);
    line.seed = 1;
    line.repeat = repeat;
    line.matches_reference = true;
    GenerationRecord turn;
    turn.context_length = 10;
    for (int i = 0; i <= made_.tokens; ++i) turn.tokens.push_back(1 + (i * 7 + prompt) % 50);
    turn.row_hashes.assign(turn.tokens.size(), 9);
    turn.prefill_ns = 1000;
    const double line_factor = run_factor_ * factor(made_.noise.line);
    for (int position = 0; position < made_.tokens;) {
      StepRecord step;
      if (drafting) step = step_at(prompt, position);
      else step.emitted = step.rows = 1;
      add_times(step, line_factor, drafting);
      position += step.emitted;
      turn.decode_ns += step.times.total();
      turn.target.calls += 1;
      turn.target.rows += step.rows;
      turn.steps.push_back(std::move(step));
    }
    turn.cpu_ns = 2 * turn.decode_ns;
    line.turns.push_back(std::move(turn));
    return line;
  }

  std::shared_ptr<CaseData> make_case(const std::string& id, const std::string& strategy,
                                      const nlohmann::json& reference, bool drafting) {
    auto data = std::make_shared<CaseData>();
    data->config = {
        {"id", id},
        {"strategy", strategy},
        {"draft", drafting ? nlohmann::json("d") : nlohmann::json(nullptr)},
        {"reference", reference},
        {"verify", "one_pass"},
        {"rule", "rejection"},
        {"axes", nlohmann::json::object()},
        {"loss_class", "L2"},
        {"options", {{"max_tokens", made_.tokens + 1}, {"temperature", 0}, {"gamma", made_.gamma}}}};
    for (int prompt = 0; prompt < made_.prompts; ++prompt) {
      std::vector<LineRecord> repeats;
      for (int repeat = 0; repeat < made_.repeats; ++repeat)
        repeats.push_back(make_line(id, prompt, repeat, drafting));
      data->prompts.push_back(std::to_string(prompt));
      data->categories.emplace_back();
      data->lines.push_back(std::make_shared<PromptLines>(PromptLines{std::move(repeats)}));
    }
    return data;
  }

  NoisyRun made_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  double run_factor_ = 1;
};

inline ComparedRun noisy_run(const NoisyRun& made) { return NoisyRunMaker(made).make(); }

/// Writes a run as a run folder.
inline void write_noisy_run(const ComparedRun& made, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "cases");
  write_json_file(folder / "config.json", made.run.config);
  write_json_file(folder / "environment.json", made.run.environment);
  for (const auto& data : made.run.cases) {
    JsonLinesWriter writer(folder / "cases" / case_file_name(data->id()));
    for (const auto& prompt : data->lines) {
      for (const LineRecord& line : prompt->front()) writer.append(to_json(line));
    }
  }
}

}  // namespace speclab::fixtures
