#pragma once

namespace speclab {

/// The laws of the steps on a chain drafted from q that have a closed form in this project
/// (core/theory/toys/toy_chain.h). A rule names its law (AcceptanceRule::chain_law). All are lossless.
enum class ChainLaw {
  rejection,     ///< accepts x with probability min(1, p(x)/q(x)) (Leviathan et al. 2023)
  sample_match,  ///< accepts x if an independent draw from p is x
  coupled,       ///< draft and target share one stream of Gumbel noise (Daliri, Musco, Suresh 2024)
  block,         ///< block verification (Sun et al. 2024, arXiv 2403.10444)
};

}  // namespace speclab
