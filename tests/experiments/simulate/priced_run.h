#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "experiments/simulate/device_file.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::fixtures {

/// A run whose speculative case has steps of 3 rows that emit 3, 2 and 1 tokens, with two draft calls of one
/// row each; and devices whose times are easy to add up.
class PricedRun : public Record {
 protected:
  std::filesystem::path calibrated_run(const std::string& name, std::int64_t step_ns, double target_ns,
                                       double wide = 1.2, int context = 10) {
    const auto path = write_run(name, step_ns);
    json round = calibration_round(target_ns, wide);
    round["context_length"] = context;
    for (int i = 0; i < 3; ++i) JsonLinesWriter(path / "calibration.jsonl").append(round);
    return path;
  }
  SimulatedDevice device(const json& file) {
    const auto path = dir_.path() / "device.json";
    write_json_file(path, file);
    return open_device(path.string());
  }
  /// The message of the Error with which a device file is refused; "accepted" without one.
  std::string refusal(const json& file) {
    try {
      device(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  /// A copy of `file` with changes; null removes a field.
  static json changed(json file, const json& change) {
    file.merge_patch(change);
    return file;
  }
  static json table_device() {
    return {{"name", "toy"},
            {"kind", "table"},
            {"step_us", 10},
            {"target_us", {{"1", 100}, {"3", 150}, {"6", 240}}},
            {"drafts_us", {{"d", {{"1", 20}, {"2", 25}}}}}};
  }
  static json only_case(const json& simulation) {
    EXPECT_EQ(simulation["cases"].size(), 1u);
    return simulation["cases"].at(0);
  }
};

}  // namespace speclab::fixtures
