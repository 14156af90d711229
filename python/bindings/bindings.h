#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>
#include <utility>

#include "core/decoding/rules/chain_law.h"
#include "core/measure/stats.h"

/// The extension module speclab.theory: closed forms and estimators of core/theory for Python. Each of the
/// functions bind_...() below adds one part to the module. The docstrings are the manual for Python users;
/// the headers of core/theory have the full contracts.
///
/// An Error of C++ becomes speclab.Error, which is a ValueError. An absent value is None. An interval is a
/// pair (lo, hi).
namespace speclab::python {

void bind_chain(nanobind::module_& module);        ///< chain.h, cascade.h
void bind_costs(nanobind::module_& module);        ///< step_costs.h
void bind_decoder(nanobind::module_& module);      ///< cost.h
void bind_rows(nanobind::module_& module);         ///< verifier_bounds.h
void bind_shapes(nanobind::module_& module);       ///< lookahead.h, tree_search.h
void bind_rounds(nanobind::module_& module);       ///< rounds.h, stats.h
void bind_estimators(nanobind::module_& module);   ///< alpha_estimators.h; after bind_rounds()
void bind_processes(nanobind::module_& module);    ///< processes/, toys/; after bind_rounds()
void bind_predictions(nanobind::module_& module);  ///< predictions.h, conversions.h; after bind_costs()

/// The law that the argument `verifier` of a function names. Empty for any other name. Each law has the name
/// of its acceptance rule. The module contains no acceptance rules, so the names stand here again.
inline std::optional<ChainLaw> named_law(std::string_view verifier) {
  constexpr std::pair<std::string_view, ChainLaw> kLaws[] = {{"rejection", ChainLaw::rejection},
                                                             {"sample_match", ChainLaw::sample_match},
                                                             {"coupled", ChainLaw::coupled},
                                                             {"block", ChainLaw::block}};
  for (const auto& [name, law] : kLaws) {
    if (name == verifier) return law;
  }
  return std::nullopt;
}

using Pair = std::pair<double, double>;

inline std::optional<Pair> as_pair(const std::optional<stats::Interval>& interval) {
  return interval ? std::optional(Pair{interval->lo, interval->hi}) : std::nullopt;
}

}  // namespace speclab::python
