#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/rows/distribution.h"
#include "core/decoding/rows/processors.h"

namespace speclab {

/// Whether a device may take over work of the host: whole steps (DevicePlan), or else the verification of the
/// host's drafts (DeviceVerifier). Text and counts do not depend on this.
enum class DeviceLoop {
  off,
  automatic,  ///< the device does what it can; the host does the rest
  on,         ///< as automatic, but an Error says why if the device can do neither
};

/// How a device gets its steps.
enum class DeviceGraph {
  off,    ///< the host launches kernel by kernel
  round,  ///< the host launches a graph for each step
  loop,   ///< the host launches one graph that repeats the step
};

/// Options of one generation that do not depend on the strategy: sampling, rule, limits, logits processors.
/// Each option is declared once, in fields(). In a config all of them are on one level, also those inside
/// `sampling` and `rule_options`.
struct GenerationOptions {
  SamplingParams sampling;    ///< temperature, top_k, top_p
  std::string rule = "auto";  ///< acceptance rule; auto: "coupled" with Gumbel coins, else "rejection"
  RuleOptions rule_options;
  CoinUse coins = CoinUse::independent;
  int max_tokens = 128;  ///< tokens to emit, including the one that follows the prefill
  int min_length = 0;    ///< no end token before this many tokens
  /// The largest number of tokens that a step adds to the text; 0: no limit. With 1, the record holds a draft
  /// for every position of the text, with its full verdict: a trace (experiments/simulate/trace.h). The
  /// distribution of the text stays the same. If the text depends on where steps begin (above temperature 0
  /// with independent coins), it is another sample of this distribution. Not with device_loop.
  int emit_at_most = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;  ///< strings that end the text
  DeviceLoop device_loop = DeviceLoop::off;
  DeviceGraph device_graph = DeviceGraph::loop;
  double repetition_penalty = 1;
  std::vector<int> banned_tokens;
  void fields(OptionVisitor& visit);

  /// Returns the rule that `rule` and `coins` select. Throws Error for an unknown rule, when `rule` and
  /// `coins` contradict each other (Gumbel coins and the rule "coupled" go only together), and when a rule
  /// option was changed that the rule does not read.
  const AcceptanceRule& acceptance_rule() const;

  /// Returns the logits processors of a request whose prompt has `prompt_length` tokens. `eos` are the end
  /// tokens of the model.
  LogitsProcessors processors(const std::vector<Token>& eos, int prompt_length) const;
};

}  // namespace speclab
