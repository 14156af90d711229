#pragma once

#include <cstddef>
#include <span>
#include <vector>

/// Computes from one pair of rows the probability that a verifier accepts the drafted token, and the law of
/// the token that a lossy verifier emits. p = target row, q = draft row. Both are standardised (after
/// temperature, top-k, top-p), [vocab], non-negative, with sum 1. Leviathan's alpha is the mean of these
/// probabilities over prefixes.
///
/// All functions throw Error for rows of different or zero length, for a negative or non-finite entry, and
/// for a sum that differs from 1 by more than 1e-4. They take O(vocab) time unless stated otherwise.
namespace speclab::theory {

using Row = std::span<const double>;  // [vocab]

/// Rejection rule (Leviathan Alg. 1, the same as Chen et al. 2023 Alg. 2): beta = sum_x min(p, q) = 1 - TV(p,
/// q) by Leviathan Theorem 3.5. No lossless verifier of a single drafted token accepts more (maximal
/// coupling).
double accept_rejection(Row p, Row q);

/// Sample-match, which accepts when a fresh target sample equals the drafted token: sum_x p q.
double accept_sample_match(Row p, Row q);

/// One-hot rule, for a draft token x chosen deterministically: p(x). The same
/// for sample-match of such a draft.
double accept_one_hot(Row p, std::size_t x);

/// Exact greedy: 1 if both rows have their (first) maximum at the same token, otherwise 0.
double accept_greedy(Row p, Row q);

/// Non-iterative rejection sampling (Leviathan A.2): 1 / M = min_{x: p > 0} q / p. It is 0
/// when q(x) = 0 < p(x) for some x.
double accept_non_iterative(Row p, Row q);

/// Lenience l in (0, 1] (Leviathan A.5): sum_x min(p / l, q). A verifier that accepts when r < p / q, with r
/// drawn from U[0, b], accepts with the same probability if b = l.
double accept_lenient(Row p, Row q, double l);

/// Gumbel coupling: target and draft take their argmax under the same noise, and sample-match verifies.
/// P(both choose the same token) = sum_x 1 / sum_y max(p_y / p_x, q_y / q_x). O(vocab log vocab). It lies
/// between accept_rejection / (2 - accept_rejection) and accept_rejection (Daliri, Musco, Suresh 2024).
double accept_gumbel(Row p, Row q);

/// Total variation distance, sum_x (p - q)+ = D_LK of Leviathan Definition 3.2.
double total_variation(Row p, Row q);

/// Emitted law under lenience l (A.5), [vocab]: accepts with probability min(1, p / (l q)), otherwise draws
/// from norm((p - l q)+).
std::vector<double> law_lenient(Row p, Row q, double l);

/// Emitted law under r ~ U[0, b], [vocab]: accepts like lenience b, but draws
/// the correction from norm((p - q)+).
std::vector<double> law_uniform_b(Row p, Row q, double b);

}  // namespace speclab::theory
