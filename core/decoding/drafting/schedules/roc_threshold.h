#pragma once

#include <cstdint>
#include <vector>

namespace speclab {

/// A threshold of confidence that is learned from the drafted tokens of a text. A drafted token is predicted
/// to be accepted if its confidence is at least the threshold. After each draft the confidences of all tokens
/// whose fate is known are tried as thresholds. The best one minimises
///
///     P(predicted accepted | rejected) + 3 P(predicted rejected | accepted)
///
/// where both P are shares of these tokens. In terms of the receiver operating characteristic (ROC) this is
/// FPR + 3 FNR. So a draft that stops too early costs three times as much as one that goes on too long. Of
/// several best thresholds the largest is taken. The fate of a token is known if the token was accepted, or
/// if it was the first rejected one of its draft. The first threshold stays until `least_samples` fates are
/// known and both an acceptance and a rejection are among them.
///
/// Source: Hugging Face transformers 5, AssistedCandidateGenerator.update_candidate_strategy, which needs 6
/// samples and begins with .4. It compares rounded quotients where this class compares integers, so it may
/// choose another one of several best thresholds.
class RocThreshold {
 public:
  RocThreshold(double first, int least_samples) : first_(first), least_samples_(least_samples) { begin(); }
  void begin();  ///< starts a text: forgets all tokens
  double value() const { return value_; }
  void start_draft() { draft_.clear(); }
  /// The confidence of the next token of the draft.
  void add(double confidence) { draft_.push_back(confidence); }
  /// Learns that the first `accepted` tokens of the draft were accepted and the next one, if there is one,
  /// was not.
  void observe(int accepted);

 private:
  struct Sample {
    double confidence;
    bool accepted;
  };
  void insert(double confidence, bool accepted);

  double first_;
  int least_samples_;
  double value_ = 0;
  std::vector<double> draft_;
  std::vector<Sample> samples_;  // descending confidence
  std::int64_t accepted_ = 0;    // number of accepted samples
};

}  // namespace speclab
