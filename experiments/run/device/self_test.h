#pragma once

#include <memory>
#include <string>

#include "core/model/net/model.h"

namespace speclab {

/// What the self-test of a device found.
struct SelfTestResult {
  int tokens = 0;  ///< length of each text
  /// Largest difference of a logit from the CPU's, divided by the largest |logit| of its row.
  double logit_difference = 0;
  std::string problem = {};  ///< what is wrong; "": nothing
};

/// The largest SelfTestResult::logit_difference that rounding explains. Devices round the inputs of linear
/// layers, keys and values to bf16 (8 significant bits); class f32 does not.
inline constexpr double kMostLogitDifference = .05;

/// Compares a device with the CPU on one model of at least two layers: `exact` is the model on the CPU in
/// class f32, `device` the same model on the device.
///
/// - The device decodes `tokens` tokens greedily, one step for each. By the CPU's logits of that text, each
///   token is the best one, or is as near to it as rounding explains.
/// - On the CPU's own greedy text, the logits of both are as near as rounding explains.
/// - On the device, whole steps without the host give the same text and the same logits rows, bit for bit. So
///   does speculation with trees and with chains that the first layer drafts.
///
/// If the device throws Error, its message is the problem.
SelfTestResult test_device(const std::shared_ptr<const Model>& exact,
                           const std::shared_ptr<const Model>& device, int tokens);

/// The same with a model of random weights: a hundred tokens, or a few on a simulated device, which is slow.
SelfTestResult test_device(const std::shared_ptr<Backend>& device);

}  // namespace speclab
