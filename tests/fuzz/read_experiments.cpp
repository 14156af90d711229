#include "core/base/json_text.h"
#include "experiments/config/config_file.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {

bool read_experiment(std::string_view input) {
  return accepted([&] {
    const Experiment experiment = parse_experiment(parse_json(input, "f.json"), "f.json");
    require(!experiment.cases.empty() && !experiment.prompts.empty(), "an experiment of nothing");
    for (const CaseSpec& spec : experiment.cases) {
      if (!spec.reference.empty())
        require(!experiment.case_by_id(spec.reference).id.empty(), "a case without its reference");
    }
    touch(bytes_of(experiment.resolved().dump()));
  });
}

}  // namespace speclab::fuzz
