#pragma once

#include <string>

#include "experiments/analysis/compare/compare.h"

/// Shows a comparison to people: on a terminal, and as Markdown for a pull request.
namespace speclab {

/// Tables and remarks for a terminal. The last line says which failures there are. `gates`: the runs were
/// compared by gates.
std::string comparison_text(const Comparison& comparison, bool gates);

/// "FAILED: 2 cases: changed text (--allow-changed-text allows it); ..." or "No failure."
std::string failures_text(const Comparison& comparison);

/// The verdict in a sentence, then a table of the cases with the parts of each change, then differences of
/// the workloads, busy machines and second measurements, in Markdown. `base` and `fresh` name the two runs.
std::string comparison_markdown(const Comparison& comparison, bool gates, const std::string& base,
                                const std::string& fresh);

}  // namespace speclab
