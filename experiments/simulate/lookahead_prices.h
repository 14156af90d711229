#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/simulate/device_file.h"

namespace speclab {

/// Prices a grid of lookahead decoding for a device. A cell of the grid is one setting (W, N, G). `folder` is
/// a run, or a committed record without lines, whose summary has a fitted law (lookahead_fits()). Each cell
/// keeps its measured tau; the law with its fitted alpha, f and share gives tau of other settings, for the
/// entry "machine". Times come from the device:
///   time of a cell = t(row_equivalents() of its step) + step time outside the forwards + the
///                    host's time for the pool, as calibrated in the run
/// Returns
///   {"device", "kind", "source", "error", "simulation": true, "context": committed tokens,
///    "fits": [{"alpha", "alpha_ci95", "f", "share", "machine": entry of lookahead_machine() for the device,
///              "cells": [{"case", "W", "N", "G", "tau", "rows", "speedup"}]}]}
/// The entry "machine" does not count the host's time. Throws Error for a run without a fitted law, and if
/// the device cannot price the target.
nlohmann::json lookahead_prices(const std::filesystem::path& folder, const SimulatedDevice& device);

std::string lookahead_prices_text(const nlohmann::json& simulation);  ///< tables for people

}  // namespace speclab
