#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace speclab::fixtures {

/// A controller for any draft, which predicts logistic((confidence - middle) / scale).
inline nlohmann::json small_controller(const std::string& schedule, double threshold, double middle = .5,
                                       double scale = .25) {
  nlohmann::json file = nlohmann::json::parse(R"({
    "format": "speclab controller", "version": 1, "draft": null, "features": ["confidence"],
    "layers": [{"weights": [[1]], "bias": [0]}]})");
  file["schedule"] = schedule;
  file["threshold"] = threshold;
  file["mean"].push_back(middle);
  file["scale"].push_back(scale);
  return file;
}

}  // namespace speclab::fixtures
