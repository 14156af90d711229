#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/rows/distribution.h"

namespace speclab {

/// How one text is generated, whatever drafts it: sampling, rule, limits, processors. Declared once, under
/// flat names.
struct GenerationOptions {
  SamplingParams sampling;    ///< temperature, top_k, top_p
  std::string rule = "auto";  ///< acceptance rule; auto: "coupled" with Gumbel coins, else "rejection"
  RuleOptions rule_options;
  std::string coins = "independent";  ///< or "gumbel": coupled sampling
  int max_tokens = 128;               ///< to emit, the one from prefill included
  int min_length = 0;                 ///< no end token before so many
  bool ignore_eos = false;
  std::vector<std::string> stop;  ///< strings that end the text
  /// Whether a device runs steps without the host (DevicePlan), or where the host drafts verifies by itself
  /// (DeviceVerifier): "off"; "auto": where it can; "on": or an Error says why it cannot. Text and counts are
  /// the same.
  std::string device_loop = "off";
  /// How a device gets such steps: "off": kernel by kernel; "round": each as a graph; "loop": a graph that
  /// repeats them.
  std::string device_graph = "loop";
  double repetition_penalty = 1;
  std::vector<int> banned_tokens;
  void fields(OptionVisitor& visit);

  /// The rule that `rule` and `coins` name. Throws Error when they contradict each other (coupled coins go
  /// with the coupled rule only), when a rule option was changed that the rule does not read, or for an
  /// unknown rule.
  const AcceptanceRule& acceptance_rule() const;
};

}  // namespace speclab
