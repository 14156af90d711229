#include "core/decoding/loop/generation.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();
constexpr double kInfinity = std::numeric_limits<double>::max();

}  // namespace

void GenerationOptions::fields(OptionVisitor& visit) {
  visit("temperature", sampling.temperature, Range<double>{0, 100}, "0: greedy");
  visit("top_k", sampling.top_k, Range<int>{0, kMost}, "keep the k most probable tokens; 0 = all");
  visit("top_p", sampling.top_p, Range<double>{0, 1, true},
        "keep the smallest set of tokens with this much mass");
  std::vector<std::string> rules{"auto"};
  for (const AcceptanceRule& entry : acceptance_rules()) rules.emplace_back(entry.name);
  visit("rule", rule, rules, "acceptance rule; auto: coupled with gumbel coins, else rejection");
  visit("lenience", rule_options.lenience, Range<double>{0, 1, true},
        "l: accept with min(1, p / (l q)); 1 = lossless");
  visit("b", rule_options.b, Range<double>{0, 1, true},
        "upper end of the uniform number that p/q must exceed; 1 = lossless");
  visit("beta", rule_options.beta, Range<int>{1, kMost}, "top-beta: accept among the beta best tokens");
  visit("gap", rule_options.gap, Range<double>{0, kInfinity}, "accept within so many nats of the best token");
  visit("epsilon", rule_options.epsilon, Range<double>{0, 1, true},
        "typical acceptance and DistillSpec's lenience functions");
  visit("delta", rule_options.delta, Range<double>{0, 1}, "typical acceptance: factor of exp(-entropy)");
  visit("theta", rule_options.theta, Range<double>{0, 1},
        "hard threshold: accept when p(x) is at least this");
  visit("threshold_top_k", rule_options.top_k, Range<int>{0, kMost},
        "hard threshold: and among the k best; 0 = off");
  visit("coins", coins, {"independent", "gumbel"},
        "gumbel: coupled sampling, text equal to autoregressive text of the same seed");
  visit("max_tokens", max_tokens, Range<int>{1, kMost}, "tokens to generate");
  visit("min_length", min_length, Range<int>{0, kMost}, "no end token before so many tokens");
  visit("ignore_eos", ignore_eos, "go on after the end token");
  visit("stop", stop, "texts that end the generation");
  visit("device_loop", device_loop, {"off", "auto", "on"},
        "steps that a GPU runs without the host, or verifies where the host drafts, if strategy, rule and "
        "backend can; "
        "on: or an error");
  visit("device_graph", device_graph, {"off", "round", "loop"},
        "such steps kernel by kernel, each as a CUDA graph, or one graph that repeats them");
  visit("repetition_penalty", repetition_penalty, Range<double>{0, 100, true},
        "divides the logits of tokens that occurred; 1 = off");
  visit("banned_tokens", banned_tokens, Range<int>{0, kMost}, "token ids that are never emitted");
}

const AcceptanceRule& GenerationOptions::acceptance_rule() const {
  const bool gumbel = coins == "gumbel";
  const AcceptanceRule& found =
      find_acceptance_rule(rule == "auto" ? (gumbel ? "coupled" : "rejection") : rule);
  if (gumbel != (found.name == "coupled")) {
    throw Error({"options rule and coins", fmt::format("rule \"{}\" with coins \"{}\"", found.name, coins),
                 "rule \"coupled\" with coins \"gumbel\", any other rule with coins \"independent\"",
                 "Leave rule out to get the one that belongs to the coins."});
  }
  const RuleOptions defaults;
  const auto changed = [&](std::string_view name, auto RuleOptions::* field) {
    if (rule_options.*field == defaults.*field) return;
    if (std::find(found.options.begin(), found.options.end(), name) != found.options.end()) return;
    throw Error({fmt::format("option {}", name), fmt::to_string(rule_options.*field),
                 fmt::format("nothing, because rule \"{}\" does not read it", found.name),
                 "Leave it out or choose another rule."});
  };
  changed("lenience", &RuleOptions::lenience);
  changed("b", &RuleOptions::b);
  changed("beta", &RuleOptions::beta);
  changed("gap", &RuleOptions::gap);
  changed("epsilon", &RuleOptions::epsilon);
  changed("delta", &RuleOptions::delta);
  changed("theta", &RuleOptions::theta);
  changed("top_k", &RuleOptions::top_k);
  return found;
}

}  // namespace speclab
