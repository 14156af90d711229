#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/rows/distribution.h"

namespace speclab {

/// May a device run whole steps (DevicePlan), or verify the host's drafts (DeviceVerifier)? Text and counts
/// stay the same.
enum class DeviceLoop {
  off,
  automatic,  ///< where it can
  on,         ///< or an Error says why it cannot
};

/// How a device gets its steps.
enum class DeviceGraph {
  off,    ///< kernel by kernel
  round,  ///< each step as a graph
  loop,   ///< one graph that repeats the step
};

/// How one text is generated, whatever drafts it: sampling, rule, limits, processors. Declared once, under
/// flat names.
struct GenerationOptions {
  SamplingParams sampling;    ///< temperature, top_k, top_p
  std::string rule = "auto";  ///< acceptance rule; auto: "coupled" with Gumbel coins, else "rejection"
  RuleOptions rule_options;
  CoinUse coins = CoinUse::independent;
  int max_tokens = 128;  ///< to emit, the one from prefill included
  int min_length = 0;    ///< no end token before so many
  bool ignore_eos = false;
  std::vector<std::string> stop;  ///< strings that end the text
  DeviceLoop device_loop = DeviceLoop::off;
  DeviceGraph device_graph = DeviceGraph::loop;
  double repetition_penalty = 1;
  std::vector<int> banned_tokens;
  void fields(OptionVisitor& visit);

  /// The rule that `rule` and `coins` name. Throws Error when they contradict each other (coupled coins go
  /// with the coupled rule only), when a rule option was changed that the rule does not read, or for an
  /// unknown rule.
  const AcceptanceRule& acceptance_rule() const;
};

}  // namespace speclab
