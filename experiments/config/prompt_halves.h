#pragma once

#include "experiments/config/experiment.h"

namespace speclab {

/// The two halves of the prompts of an experiment. A choice that is made on one half can be tested on the
/// other.
enum class PromptHalf {
  first,   ///< the first, third, fifth, ... prompt of each category
  second,  ///< the other prompts; none of a category that has only one prompt
};

/// Removes the prompts of the other half. The experiment may then have no prompts.
void keep_half(Experiment& experiment, PromptHalf half);

}  // namespace speclab
