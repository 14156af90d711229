#pragma once

#include <span>
#include <string>

#include "core/model/heads/head_runner.h"

namespace speclab {

/// A residual block of Medusa (Cai et al. 2024) and Hydra (Ankner et al. 2024): y = R x + SiLU(W x + b). R is
/// the identity if x is one vector, and a linear layer with a bias if x is several concatenated vectors.
class ResidualBlock {
 public:
  /// Reads NAME.linear, and if `inputs` has several widths, NAME.res_connection; both with a bias.
  ResidualBlock(const HeadFile& file, Backend& backend, const std::string& name, std::span<const int> inputs,
                int out);

  /// `y` and `scratch` must be none of the inputs.
  void run(HeadRunner& runner, std::span<const HeadRows* const> inputs, HeadRows& y, HeadRows& scratch) const;

 private:
  HeadLinear linear_, residual_;  // residual_ has no parts for the identity
};

}  // namespace speclab
