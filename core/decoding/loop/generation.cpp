#include "core/decoding/loop/generation.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

/// The first rule in the table that uses these coins.
const AcceptanceRule& rule_of(CoinUse coins) {
  return *std::ranges::find(acceptance_rules(), coins, &AcceptanceRule::coins);
}

std::string_view to_string(CoinUse coins) { return coins == CoinUse::gumbel ? "gumbel" : "independent"; }

}  // namespace

void GenerationOptions::fields(OptionVisitor& visit) {
  visit("temperature", sampling.temperature, Range<double>{0, 100}, "0: greedy");
  visit("top_k", sampling.top_k, Range<int>{0, kMost}, "keep the k most probable tokens; 0 = all");
  visit("top_p", sampling.top_p, Range<double>{0, 1, true},
        "keep the smallest set of tokens with this much mass");
  std::vector<std::string> rules{"auto"};
  for (const AcceptanceRule& entry : acceptance_rules()) rules.emplace_back(entry.name);
  visit("rule", rule, rules, "acceptance rule; auto: \"coupled\" if coins is gumbel, else \"rejection\"");
  for (const RuleOption* option : all_rule_options()) {
    if (option->number != nullptr)
      visit(option->name, rule_options.*option->number, option->range, option->help);
    else visit(option->name, rule_options.*option->count, option->counts, option->help);
  }
  visit("coins", coins, {{CoinUse::independent, "independent"}, {CoinUse::gumbel, "gumbel"}},
        "gumbel: coupled sampling; the text equals the autoregressive text of the same seed");
  visit("max_tokens", max_tokens, Range<int>{1, kMost}, "tokens to generate");
  visit("min_length", min_length, Range<int>{0, kMost}, "no end token before this many tokens");
  visit("emit_at_most", emit_at_most, Range<int>{0, kMost},
        "largest number of tokens that a step adds to the text; 1: drafts at every position, for speclab "
        "replay; 0: no limit");
  visit.absent_means("0");
  visit("ignore_eos", ignore_eos, "go on after the end token");
  visit("stop", stop, "texts that end the generation");
  visit(
      "device_loop", device_loop,
      {{DeviceLoop::off, "off"}, {DeviceLoop::automatic, "auto"}, {DeviceLoop::on, "on"}},
      "off: the host runs every step. auto: a GPU runs whole steps without the host. If it cannot, it "
      "verifies "
      "the drafts of the host. If strategy, rule or backend allow neither, the host does everything. on: as "
      "auto, but an error if the GPU can do neither");
  visit("device_graph", device_graph,
        {{DeviceGraph::off, "off"}, {DeviceGraph::round, "round"}, {DeviceGraph::loop, "loop"}},
        "how the host launches the steps of device_loop on the GPU. off: kernel by kernel. round: a CUDA "
        "graph for each step. loop: one CUDA graph that repeats the step");
  visit("repetition_penalty", repetition_penalty, Range<double>{0, 100, true},
        "divides positive and multiplies negative logits of tokens that occurred; 1 = off");
  visit("banned_tokens", banned_tokens, Range<int>{0, kMost}, "token ids that are never emitted");
}

const AcceptanceRule& GenerationOptions::acceptance_rule() const {
  const AcceptanceRule& found = rule == "auto" ? rule_of(coins) : find_acceptance_rule(rule);
  if (coins != found.coins) {
    throw Error({"options rule and coins",
                 fmt::format("rule \"{}\" with coins \"{}\"", found.name, to_string(coins)),
                 "rule \"coupled\" with coins \"gumbel\", any other rule with coins \"independent\"",
                 "Leave rule out to get the one that belongs to the coins."});
  }
  const RuleOptions defaults;
  for (const RuleOption* option : all_rule_options()) {
    const bool is_number = option->number != nullptr;
    const bool changed = is_number ? rule_options.*option->number != defaults.*option->number
                                   : rule_options.*option->count != defaults.*option->count;
    if (!changed || std::ranges::find(found.options, option) != found.options.end()) continue;
    throw Error({fmt::format("option {}", option->name),
                 is_number ? fmt::to_string(rule_options.*option->number)
                           : fmt::to_string(rule_options.*option->count),
                 fmt::format("nothing, because rule \"{}\" does not read it", found.name),
                 "Leave it out or choose another rule."});
  }
  return found;
}

LogitsProcessors GenerationOptions::processors(const std::vector<Token>& eos, int prompt_length) const {
  return {{.repetition_penalty = repetition_penalty,
           .min_length = ignore_eos ? 0 : min_length,
           .banned = {banned_tokens.begin(), banned_tokens.end()},
           .eos = eos},
          prompt_length};
}

}  // namespace speclab
