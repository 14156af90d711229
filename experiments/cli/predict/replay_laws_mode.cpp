#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/replay_modes.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/simulate/replay/laws/law_table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The numbers of an option, which must be integers from `least` to `most`.
std::vector<int> whole_numbers(const std::string& text, const char* option, int least, int most) {
  std::vector<int> out;
  for (const double number : parse_number_list(text, option)) {
    if (!(number >= least && number <= most && number == std::floor(number))) {
      throw Error({.what = option,
                   .got = fmt::format("{}", number),
                   .expected = fmt::format("whole numbers from {} to {}", least, most),
                   .advice = ""});
    }
    out.push_back(static_cast<int>(number));
  }
  return out;
}

std::vector<std::string> texts_of(const po::variables_map& values, const char* name) {
  return values.count(name) > 0 ? values[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

/// The settings that the command line names, as options of the strategies.
std::vector<json> asked_settings(const po::variables_map& values) {
  std::vector<json> out;
  for (const std::string& text : texts_of(values, "wng")) {
    const std::vector<int> numbers = whole_numbers(text, "--wng", 1, 256);
    if (numbers.size() != 3) {
      throw Error({.what = "--wng",
                   .got = "\"" + text + "\"",
                   .expected = "three numbers: W, N and G",
                   .advice = "For example --wng 15,5,15."});
    }
    out.push_back(json::object({{"W", numbers[0]}, {"N", numbers[1]}, {"G", numbers[2]}}));
  }
  if (values.count("block") > 0) {
    for (const int block : whole_numbers(values["block"].as<std::string>(), "--block", 2, 512))
      out.push_back(json::object({{"block", block}}));
  }
  for (const std::string& text : texts_of(values, "recycled")) {
    const std::vector<int> children = whole_numbers(text, "--recycled", 0, 64);
    if (children.empty()) {
      throw Error({.what = "--recycled",
                   .got = "an empty list",
                   .expected = "the number of children of each node, in breadth-first order",
                   .advice = "For example --recycled 4,2,1."});
    }
    json setting = json::object();
    setting["tree"] = children;
    out.push_back(std::move(setting));
  }
  return out;
}

}  // namespace

int replay_of_laws(const po::variables_map& values, const RunData& run) {
  const std::vector<FittedLaw> laws = fitted_laws(run.cases, run.calibration);
  if (laws.empty()) {
    throw Error({.what = "--fitted",
                 .got = "a run to which no law can be fitted",
                 .expected =
                     "two settings of lookahead or Jacobi decoding, or a case of token recycling, with a "
                     "fixed budget",
                 .advice = "configs/lookahead_wng.json and configs/jacobi.json have such settings."});
  }
  print_json_or(values, law_table(laws, asked_settings(values)), law_table_text);
  return kOk;
}

}  // namespace speclab
