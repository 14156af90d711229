#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "experiments/cli/command.h"
#include "experiments/run/device/open_backend.h"
#include "experiments/run/conversation.h"
#include "experiments/run/model_set.h"
#include "experiments/run/numerics_check.h"
#include "experiments/config/prompts.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The backends to compare with f32: one for each class of --class and --numerics. If both are absent: one
/// for each class of this CPU, and the chosen device if it is not the CPU. The class f32 itself is left out.
std::vector<BackendChoice> compared(const BackendChoice& choice, std::vector<std::string> classes) {
  check_backend(choice);
  std::vector<BackendChoice> all;
  if (choice.numerics != "auto") classes.push_back(choice.numerics);
  for (const std::string& numerics : classes) {
    all.push_back(choice);
    all.back().numerics = numerics;
  }
  if (classes.empty()) {
    for (const std::string& numerics : cpu_numerics_classes())
      all.push_back({.backend = BackendKind::kCpu, .numerics = numerics, .threads = choice.threads});
    if (is_device(choice)) all.push_back(choice);
  }
  std::erase_if(all, [](const BackendChoice& each) { return each.numerics == "f32"; });
  return all;
}

int run_numerics(const Command& command, const std::vector<std::string>& arguments) {
  std::string model, prompts;
  int tokens = 0, limit = 0;
  BackendChoice choice;
  po::options_description options;
  options.add_options()("model", po::value(&model), "target: a GGUF file or a directory")(
      "prompts", po::value(&prompts)->default_value("configs/prompts/quickstart.jsonl"),
      "JSONL file of prompts; only first turns are used")("limit", po::value(&limit)->default_value(0),
                                                          "only the first n prompts; 0: all")(
      "tokens", po::value(&tokens)->default_value(64), "tokens of each text")(
      "class", po::value<std::vector<std::string>>()->composing(),
      "compare this numerics class, such as amx-bf16-emulated (may be repeated; default: the class of "
      "--numerics; without it, all classes of this CPU and the class of --backend)")("json", "print JSON");
  add_backend_options(options, choice);
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  required(*values, "model", command);
  if (tokens < 1 || limit < 0) {
    throw Error({.what = "speclab numerics",
                 .got = fmt::format("--tokens {} --limit {}", tokens, limit),
                 .expected = "at least 1 token and a limit of 0 or more",
                 .advice = ""});
  }
  std::vector<std::string> classes;
  if (values->count("class") > 0) classes = (*values)["class"].as<std::vector<std::string>>();
  const std::vector<BackendChoice> others = compared(choice, std::move(classes));
  const ModelSet exact(
      model, make_backend({.backend = BackendKind::kCpu, .numerics = "f32", .threads = choice.threads}), "");
  std::vector<PromptTokens> contexts;
  PromptSource source;
  source.file = prompts;
  source.limit = limit;
  for (const PromptSpec& prompt : load_prompts(source))
    contexts.push_back(Conversation(exact, prompt, "").tokens());
  const AutoNumerics& automatic = auto_cpu_numerics();
  json out = json::array();
  Table table{
      .header = {"class", "prompts", "positions", "KL mean", "KL max", "same top token", "logits within"},
      .rows = {},
      .right = {false, true, true, true, true, true, true}};
  for (const BackendChoice& each : others) {
    const ModelSet other(model, make_backend(each), "plain");
    const std::string name(each.numerics == "auto" ? other.backend().numerics_class() : each.numerics);
    const NumericsAgreement found =
        compare_numerics(*exact.target(), *other.target(), name, contexts, tokens);
    out.push_back({{"numerics", found.numerics},
                   {"prompts", found.prompts},
                   {"positions", found.positions},
                   {"kl_mean", found.kl_mean},
                   {"kl_max", found.kl_max},
                   {"top1_agreement", found.top1},
                   {"logit_difference", found.logit_difference}});
    if (name == automatic.numerics) out.back()["auto_reason"] = automatic.reason;
    table.rows.push_back({found.numerics, std::to_string(found.prompts), std::to_string(found.positions),
                          fmt::format("{:.2e}", found.kl_mean), fmt::format("{:.2e}", found.kl_max),
                          fmt::format("{:.2f} %", 100 * found.top1),
                          fmt::format("{:.1e}", found.logit_difference)});
  }
  if (values->count("json") > 0) {
    fmt::print("{}\n", out.dump(1));
    return kOk;
  }
  fmt::print(
      "{}Compared with class f32 on texts that f32 decodes greedily. KL(p_f32 || p_class) in nats at "
      "temperature 1.\n"
      "logits within: largest difference of a logit, divided by the largest |logit| of its row.\n"
      "{}.\n",
      to_text(table), auto_numerics_text(automatic));
  return kOk;
}

}  // namespace

const Command kNumericsCommand = {
    "numerics", "--model PATH [options]",
    "Compares numerics classes of this CPU, or of a GPU, with the class f32: KL divergence, top-1 "
    "agreement, logits.",
    "speclab numerics --model models/SmolLM2-135M-Instruct.Q4_1.gguf", run_numerics};

}  // namespace speclab
