#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace speclab {

/// A linear correction of the logits of a model, which is learned while the model is used:
///
///   corrected logits = logits + D h + b
///
/// h is the state after the final norm, which the output head reads. So the model behaves as if its output
/// head had changed from W to W + D and had the bias b, while its own weights, which other cases share, stay
/// as they are. D and b start at 0. They have rows only for the tokens that were learned, because a step
/// changes few tokens noticeably. So the correction costs much less than the output head. All bits are the
/// same on every machine.
class LogitsCorrection {
 public:
  /// The size of a step and its limits.
  struct Step {
    double rate;   ///< at the same state, the step lowers the logits by rate * gradient
    double clip;   ///< a gradient that is longer than this (Euclidean norm) is shortened to it
    double least;  ///< smaller entries of the gradient are left out
  };

  /// `width`: size of a state. `entries`: number of logits at a position. `most_rows`: largest number of rows
  /// of D. The memory for these rows is allocated here.
  LogitsCorrection(int width, int entries, int most_rows);

  /// Sets D and b to 0.
  void clear();
  /// Adds D h + b. state: [width], logits: [entries].
  void apply(std::span<const float> state, std::span<float> logits) const;
  /// Takes one step of descent: D -= f gradient h^T, b -= f gradient. `gradient` is with respect to the
  /// logits at the state h, [entries]. With f = rate / (1 + |h|^2) the logits at h fall by rate * gradient,
  /// whatever the scale of the model's states is (the normalised LMS rule of adaptive filters). If a token
  /// needs a new row and all rows are in use, the row that was taken longest ago is dropped: its token is
  /// corrected no more.
  void descend(std::span<const float> state, std::span<const float> gradient, const Step& step);

  int rows() const { return static_cast<int>(used_); }  ///< number of tokens that are corrected

 private:
  static float product(const float* a, const float* b, std::size_t n);
  float* row(std::size_t index) { return rows_.data() + index * (width_ + 1); }
  const float* row(std::size_t index) const { return rows_.data() + index * (width_ + 1); }
  std::size_t row_of(std::size_t entry);

  std::size_t width_;
  std::size_t most_;  // rows
  std::size_t used_ = 0;
  std::size_t oldest_ = 0;           // if all rows are in use: the one that was taken longest ago
  std::vector<float> rows_;          // [most, width + 1]: a row of D, then its entry of b
  std::vector<std::int32_t> entry_;  // [most], the entry of each row
  std::vector<std::int32_t> place_;  // [entries], the row of each entry; -1: none
};

}  // namespace speclab
