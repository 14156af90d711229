#include "experiments/run/device/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/registry.h"
#include "core/model/toy/random_decoder.h"
#include "experiments/run/forced_rows.h"
#include "experiments/run/numerics_check.h"

namespace speclab {
namespace {

constexpr int kTokens = 100, kTokensIfSimulated = 8;
constexpr int kRoom = 64;  ///< positions beside prompt and text, for drafts

PromptTokens prompt_of(const Model& model) {
  PromptTokens prompt;
  for (int i = 0; i < 10; ++i) prompt.push_back(static_cast<Token>((7 + 31 * i) % model.config().vocab));
  return prompt;
}

GenerationRecord decode_greedily(const std::shared_ptr<const Model>& target,
                                 const std::shared_ptr<const Model>& draft, const StrategyChoice& strategy,
                                 DeviceLoop device_loop, int tokens) {
  const PromptTokens prompt = prompt_of(*target);
  LoopOptions options;
  options.capacity = static_cast<int>(prompt.size()) + tokens + kRoom;
  Request request;
  request.prompt = prompt;
  request.options.sampling.temperature = 0;
  request.options.max_tokens = tokens;
  request.options.ignore_eos = true;
  request.options.device_loop = device_loop;
  return DecodeLoop(target, draft, strategy, options).run(request);
}

/// A strategy that drafts trees. `widths`: the number of children of a node at each depth.
StrategyChoice trees(const std::vector<int>& widths) {
  StrategyChoice choice(tree_strategy());
  parse_options(choice.fields(), {{"widths", widths}, {"budget", "fixed"}}, "self-test");
  return choice;
}

/// "" if both records have the same tokens, which came from the same logits rows.
std::string difference_of(const std::string& what, const GenerationRecord& got,
                          const GenerationRecord& expected) {
  if (got.tokens == expected.tokens && got.row_hashes == expected.row_hashes) return "";
  std::size_t at = 0;
  while (at < std::min(got.tokens.size(), expected.tokens.size()) && got.tokens[at] == expected.tokens[at] &&
         got.row_hashes[at] == expected.row_hashes[at])
    ++at;
  return fmt::format("{}: from token {} on, text or logits are not those of plain decoding", what, at);
}

/// "" if each token of the text is the best one by the logits of `exact`, or near to it.
std::string wrong_token(const Model& exact, const std::vector<Token>& text) {
  std::string problem;
  forced_rows(exact, prompt_of(exact), text, [&](std::size_t i, std::span<const float> row) {
    float best = row[0], largest = 0;
    for (const float logit : row) {
      best = std::max(best, logit);
      largest = std::max(largest, std::abs(logit));
    }
    const double below = best - row[static_cast<std::size_t>(text[i])];
    // Both the best logit and the token's logit may be off.
    if (problem.empty() && !(below <= 2 * kMostLogitDifference * largest))
      problem = fmt::format(
          "token {} of its greedy text is not the best one: the CPU's logit of this token is {:.3g} below "
          "the CPU's best",
          i, below);
  });
  return problem;
}

std::string problem_of(const std::shared_ptr<const Model>& exact, const std::shared_ptr<const Model>& device,
                       SelfTestResult& result) {
  const StrategyChoice plain(baseline_strategy());
  const std::shared_ptr<const Model> draft = Model::with_layers(device, {0});
  const GenerationRecord text = decode_greedily(device, nullptr, plain, DeviceLoop::off, result.tokens);
  if (static_cast<int>(text.tokens.size()) != result.tokens)
    return fmt::format("a text of {} tokens, expected {}", text.tokens.size(), result.tokens);
  if (std::string problem = wrong_token(*exact, text.tokens); !problem.empty()) return problem;
  result.logit_difference =
      compare_numerics(*exact, *device, "", {prompt_of(*exact)}, result.tokens).logit_difference;
  if (!(result.logit_difference <= kMostLogitDifference))
    return fmt::format("logits differ from the CPU's by {:.3g} of the largest logit, more than {}",
                       result.logit_difference, kMostLogitDifference);
  struct Way {
    std::string name;
    StrategyChoice strategy;
    DeviceLoop device_loop;
  };
  const Way ways[] = {
      {"steps without the host", plain, DeviceLoop::automatic},
      {"speculation with trees", trees({2, 1, 1}), DeviceLoop::off},
      {"speculation with trees, steps without the host", trees({2, 1, 1}), DeviceLoop::automatic},
      {"speculation with chains, steps without the host", trees({1, 1, 1}), DeviceLoop::automatic}};
  for (const Way& way : ways) {
    const bool drafts = way.strategy.info().needs_draft;
    const GenerationRecord other =
        decode_greedily(device, drafts ? draft : nullptr, way.strategy, way.device_loop, result.tokens);
    if (std::string problem = difference_of(way.name, other, text); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

SelfTestResult test_device(const std::shared_ptr<const Model>& exact,
                           const std::shared_ptr<const Model>& device, int tokens) {
  SelfTestResult result{.tokens = tokens};
  try {
    result.problem = problem_of(exact, device, result);
  } catch (const Error& error) {
    result.problem = error.what();
  }
  return result;
}

SelfTestResult test_device(const std::shared_ptr<Backend>& device) {
  const bool simulated = device->simulated();
  toy::DecoderSizes sizes;
  if (simulated)
    sizes = {.hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 64, .vocab = 64};
  const Checkpoint checkpoint = toy::open_random_decoder(sizes, 1);
  const auto cpu = make_cpu_backend({.threads = 1, .numerics = "f32"});
  return test_device(Model::load(checkpoint, cpu, {}), Model::load(checkpoint, device, {}),
                     simulated ? kTokensIfSimulated : kTokens);
}

}  // namespace speclab
