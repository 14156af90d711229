#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

enum class ScheduleRule;  // schedule.h

/// What a controller may look at when a token was just drafted.
struct ControllerInput {
  double confidence = 0;         ///< the token's probability
  double entropy = 0;            ///< entropy in nats of the row that the token was drawn from
  double product = 1;            ///< product of the confidences of this draft, this token included
  int position = 1;              ///< place of the token in the draft, from 1
  std::span<const float> top{};  ///< the largest probabilities of the row, descending
};

/// One number that the network reads.
struct ControllerFeature {
  enum class Kind { confidence, entropy, margin, position, product, top };
  Kind kind;
  int rank = 0;  ///< top: 1 for the largest probability
};

/// A trained network that predicts, for each drafted token, the probability that the target accepts it if it
/// accepted the tokens before it. The schedules disco and specdec_pp stop drafts by it (schedule.h).
///
/// The network reads features, subtracts a mean, divides by a scale, and has one or more fully connected
/// layers with ReLU between them. The last layer has one output, and the logistic function makes a
/// probability of it. All numbers are doubles and exp is the project's own, so decisions are the same on
/// every machine.
///
/// A file is JSON:
///
///     {"format": "speclab controller", "version": 1, "schedule": "disco" or "specdec_pp",
///      "draft": {"name", "sha256"}, of the model that it was trained for; null: for any draft,
///      "features": ["top_1", "top_2", "entropy", "position"], "mean": [4], "scale": [4, above 0],
///      "layers": [{"weights": [outputs][inputs], "bias": [outputs]}, ...], "threshold": from 0 to 1, ...}
///
/// Features: "confidence", "entropy", "position", "product" as in ControllerInput; "top_N": the N-th largest
/// probability of the row; "margin": top_1 - top_2. Other members describe the training and are not read.
/// scripts/fit/fit_controller.py writes such files from traces.
class Controller {
 public:
  static constexpr int kMostTop = 16;  ///< largest N of top_N

  /// Throws Error for a file that is missing, of another format or version, or damaged.
  static Controller read(const std::filesystem::path& path);
  static Controller of_json(const nlohmann::json& file, const std::string& where);

  ScheduleRule schedule() const { return schedule_; }  ///< the schedule that it was made for
  double threshold() const { return threshold_; }      ///< the threshold that was chosen for it
  int top() const { return top_; }                     ///< how many entries of ControllerInput::top it reads
  /// The predicted probability that the target accepts the token. Missing entries of `top` count as 0.
  double acceptance(const ControllerInput& input) const;
  /// Throws Error unless the controller was trained for the draft model with this name and, if both are
  /// known, this SHA-256.
  void require_draft(std::string_view name, std::string_view sha256 = {}) const;

 private:
  struct Layer {
    std::vector<double> weights;  // [outputs, inputs]
    std::vector<double> bias;     // [outputs]
  };

  std::string where_, draft_name_, draft_sha256_;  // no name: for any draft
  ScheduleRule schedule_{};
  double threshold_ = 0;
  int top_ = 0;
  std::vector<ControllerFeature> features_;
  std::vector<double> mean_, scale_;  // [features]
  std::vector<Layer> layers_;
};

inline constexpr const char* kControllerFormat = "speclab controller";
inline constexpr int kControllerVersion = 1;

}  // namespace speclab
