#pragma once

namespace speclab {

/// How a rule verifies a chain that was drafted from q, if this project computes the steps in closed form
/// (core/theory/toys/toy_chain.h). A rule names its value in AcceptanceRule::chain_law. All are lossless.
enum class ChainLaw {
  rejection,     ///< accepts x with probability min(1, p(x)/q(x)) (Leviathan et al. 2023)
  sample_match,  ///< accepts x if an independent draw from p is x
  coupled,       ///< draft and target share one stream of Gumbel noise (Daliri, Musco, Suresh 2024)
  block,         ///< block verification (Sun et al. 2024, arXiv 2403.10444)
};

}  // namespace speclab
