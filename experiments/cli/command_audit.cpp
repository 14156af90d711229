#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/theory/audit/verifier_audit.h"
#include "experiments/analysis/table.h"
#include "experiments/cli/command.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

struct AuditedRule {
  const AcceptanceRule* rule;
  std::vector<audit::Finding> findings;
  bool exact() const {
    return std::ranges::all_of(findings, [](const audit::Finding& finding) { return finding.exact; });
  }
};

/// The rules with these names. Without names: every rule that is lossless and can be enumerated; the other
/// lossless rules go into `left_out`.
std::vector<const AcceptanceRule*> chosen_rules(const std::vector<std::string>& names,
                                                std::vector<const AcceptanceRule*>& left_out) {
  std::vector<const AcceptanceRule*> rules;
  for (const std::string& name : names) {
    const AcceptanceRule& rule = find_acceptance_rule(name);
    if (const std::string reason = audit::not_enumerable(rule); !reason.empty()) {
      throw Error(
          {.what = fmt::format("speclab audit {}", name),
           .got = fmt::format("a rule that cannot be enumerated: {}", reason),
           .expected = "a rule whose coins have finitely many outcomes",
           .advice = "speclab audit without a rule audits all lossless rules that can be enumerated."});
    }
    rules.push_back(&rule);
  }
  if (!names.empty()) return rules;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss(audit::lossless_options(), {.temperature = 1}) != LossClass::l1) continue;
    (audit::not_enumerable(rule).empty() ? rules : left_out).push_back(&rule);
  }
  return rules;
}

std::string optional_number(const std::optional<double>& value) {
  return value ? fmt::format("{:.7g}", *value) : "—";
}

/// An error as text; "0" if it is at most `tolerance`, which is rounding.
std::string error_text(double error, double tolerance) {
  return error <= tolerance ? "0" : fmt::format("{:.4g}", error);
}

std::string verdict(const audit::Finding& finding, double tolerance) {
  if (!finding.exact) return "WRONG";
  return finding.cut > tolerance ? fmt::format("exact to {:.0e}", finding.cut) : "exact";
}

std::string failure_text(const AuditedRule& audited, const audit::Finding& finding) {
  if (!finding.failure)
    return fmt::format("{}, {}: E[tau] is above the optimum by {:.4g}.\n", audited.rule->name, finding.shape,
                       finding.excess.value_or(0));
  const audit::Failure& failure = *finding.failure;
  return fmt::format(
      "{}, {}: wrong after the history [{}] on the table \"{}\": the next token has the law "
      "[{:.6g}], the target's row is [{:.6g}].\n",
      audited.rule->name, finding.shape, fmt::join(failure.history, " "), failure.table,
      fmt::join(failure.found, " "), fmt::join(failure.expected, " "));
}

void print_audit(const std::vector<AuditedRule>& all, const std::vector<const AcceptanceRule*>& left_out,
                 const audit::Settings& settings) {
  Table table{.header = {"rule", "draft", "tables", "runs", "first token", "joint law", "E[tau]", "optimum",
                         "verdict"},
              .rows = {},
              .right = {false, false, true, true, true, true, true, true, false}};
  std::string notes;
  for (const AuditedRule& audited : all) {
    for (const audit::Finding& f : audited.findings) {
      const double rounding = std::max(settings.tolerance, f.cut);
      table.rows.push_back({std::string(audited.rule->name), f.shape, fmt::format("{}", f.tables),
                            fmt::format("{}", f.runs), error_text(f.first_error, rounding),
                            error_text(f.joint_error, rounding), optional_number(f.golden_tau),
                            optional_number(f.golden_optimum), verdict(f, settings.tolerance)});
      if (!f.exact) notes += failure_text(audited, f);
    }
  }
  fmt::print("{}\n", to_text(table));
  fmt::print(
      "first token, joint law: largest difference between the probabilities that rule and target give to the "
      "first token and to all tokens of a step; up to {:.0e} it is rounding, shown as 0.\n"
      "E[tau], optimum: expected tokens of a step on the pair p = (.55 .25 .15 .05), q = (.4 .35 .05 .2), "
      "and "
      "the largest value of any lossless verifier of one sampled chain (arXiv 2403.10444). On the other "
      "tables "
      "E[tau] is compared with the optimum too.\n",
      settings.tolerance);
  for (const AuditedRule& audited : all) {
    const auto cut = std::ranges::max(audited.findings, {}, &audit::Finding::cut).cut;
    if (cut > 0)
      fmt::print("{} draws until it accepts. Its long runs were cut, so its laws may be off by {:.0e}.\n",
                 audited.rule->name, cut);
  }
  for (const AcceptanceRule* rule : left_out)
    fmt::print("{} is not audited: {}.\n", rule->name, audit::not_enumerable(*rule));
  fmt::print("{}", notes);
}

json optional_json(const std::optional<double>& value) { return value ? json(*value) : json(); }

json audit_json(const std::vector<AuditedRule>& all, const std::vector<const AcceptanceRule*>& left_out,
                const audit::Settings& settings) {
  json rules = json::array();
  for (const AuditedRule& audited : all) {
    json findings = json::array();
    for (const audit::Finding& f : audited.findings) {
      json failure;
      if (f.failure) {
        failure = {{"table", f.failure->table},
                   {"history", f.failure->history},
                   {"found", f.failure->found},
                   {"expected", f.failure->expected}};
      }
      findings.push_back({{"draft", f.shape},
                          {"tables", f.tables},
                          {"runs", f.runs},
                          {"first_token_error", f.first_error},
                          {"joint_error", f.joint_error},
                          {"cut_probability", f.cut},
                          {"golden_tau", optional_json(f.golden_tau)},
                          {"golden_optimum", optional_json(f.golden_optimum)},
                          {"largest_excess_over_optimum", optional_json(f.excess)},
                          {"exact", f.exact},
                          {"failure", failure}});
    }
    rules.push_back({{"rule", audited.rule->name}, {"exact", audited.exact()}, {"findings", findings}});
  }
  json not_audited = json::array();
  for (const AcceptanceRule* rule : left_out)
    not_audited.push_back({{"rule", rule->name}, {"reason", audit::not_enumerable(*rule)}});
  return {{"seed", settings.seed},
          {"tolerance", settings.tolerance},
          {"rules", rules},
          {"not_audited", not_audited}};
}

int checked_number(const po::variables_map& values, const char* name, int least, int most,
                   const char* meaning) {
  const int value = values[name].as<int>();
  if (value < least || value > most) {
    throw Error({.what = fmt::format("--{}", name),
                 .got = fmt::format("{}", value),
                 .expected = fmt::format("{} to {}", least, most),
                 .advice = meaning});
  }
  return value;
}

int run_audit(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("gamma", po::value<int>()->default_value(3),
                        "tokens of the longest chain and depth of the deepest tree, from 1 to 4; shorter "
                        "ones are audited too")(
      "vocab", po::value<int>()->default_value(4),
      "number of tokens of the largest vocabulary, from 2 to 5; smaller ones are audited too")(
      "tables", po::value<int>()->default_value(2),
      "number of random tables of each kind, vocabulary and way to draft, from 1 to 1000")(
      "seed", po::value<int>()->default_value(1), "seed of the random tables")("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RULE..."});
  if (!values) return kOk;
  audit::Settings settings;
  const char* grows = "The number of runs grows as vocab^gamma.";
  settings.max_gamma = checked_number(*values, "gamma", 1, 4, grows);
  settings.max_vocab = checked_number(*values, "vocab", 2, 5, grows);
  settings.tables = checked_number(*values, "tables", 1, 1000, "Every table costs the same time.");
  settings.seed = static_cast<unsigned>(
      checked_number(*values, "seed", 0, 1 << 30, "Any seed gives tables of the same kinds."));
  std::vector<const AcceptanceRule*> left_out;
  const std::vector<const AcceptanceRule*> rules =
      chosen_rules(values->count("RULE") > 0 ? (*values)["RULE"].as<std::vector<std::string>>()
                                             : std::vector<std::string>{},
                   left_out);
  catch_interrupts();
  std::vector<AuditedRule> all;
  for (const AcceptanceRule* rule : rules) {
    if (interrupted()) return kInterrupted;
    all.push_back({rule, audit::audit(*rule, audit::lossless_options(), settings)});
  }
  if (values->count("json") > 0) {
    fmt::print("{}\n", audit_json(all, left_out, settings).dump(1));
  } else {
    print_audit(all, left_out, settings);
  }
  return std::ranges::all_of(all, &AuditedRule::exact) ? kOk : kCheckFailed;
}

}  // namespace

const Command kAuditCommand = {
    "audit", "[RULE...] [options]",
    "Enumerates all outcomes of acceptance rules on small tables and compares the law of their tokens with "
    "the target's.",
    "speclab audit rejection block", run_audit};

}  // namespace speclab
