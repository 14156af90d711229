#pragma once

#include <cstddef>
#include <span>
#include <vector>

/// What one pair of rows says about one drafted token: the probability that a verifier accepts it, and the
/// law of the token that a lossy verifier emits. p = target row, q = draft row, both standardised (after
/// temperature, top-k, top-p), [vocab], non-negative, summing to 1. alpha of Leviathan is the mean of these
/// numbers over prefixes.
///
/// Errors: rows of different or zero length, a negative or non-finite entry, or a sum that is off 1 by more
/// than 1e-4 throw Error. All functions are O(vocab) unless said otherwise.
namespace speclab::theory {

using Row = std::span<const double>;  // [vocab]

/// Rejection rule (Leviathan Alg. 1 and Theorem 3.5 = Chen et al. 2023 Alg. 2): beta = sum_x min(p, q) = 1 -
/// TV(p, q). No verifier of a single draft accepts more (maximal coupling).
double accept_rejection(Row p, Row q);

/// Sample-match: a fresh target sample equals the drafted token: sum_x p q.
double accept_sample_match(Row p, Row q);

/// One-hot rule, draft token x chosen deterministically: p(x). Also sample-match of a deterministic draft.
double accept_one_hot(Row p, std::size_t x);

/// Exact greedy: 1 if both rows have their (first) maximum at the same token, else 0.
double accept_greedy(Row p, Row q);

/// Non-iterative rejection sampling (Leviathan A.2): 1 / M = min_{x: p > 0} q / p; 0 when q misses support of
/// p.
double accept_non_iterative(Row p, Row q);

/// Lenience l in (0, 1] (Leviathan A.5), and r ~ U[0, b] with b = l: sum_x min(p / l, q).
double accept_lenient(Row p, Row q, double l);

/// Gumbel coupling: target and draft take their argmax under the same noise, verified by sample-match:
/// P(both choose the same) = sum_x 1 / sum_y max(p_y / p_x, q_y / q_x). O(vocab log vocab).
/// Between accept_rejection / (2 - accept_rejection) and accept_rejection (Daliri, Musco, Suresh 2024).
double accept_gumbel(Row p, Row q);

/// Total variation distance, sum_x (p - q)+ = D_LK of Leviathan Definition 3.2.
double total_variation(Row p, Row q);

/// Emitted law under lenience l (A.5): accept with min(1, p / (l q)), else draw from norm((p - l q)+).
/// [vocab]
std::vector<double> law_lenient(Row p, Row q, double l);

/// Emitted law under r ~ U[0, b]: the acceptance of lenience b, but the residual stays norm((p - q)+).
/// [vocab]
std::vector<double> law_uniform_b(Row p, Row q, double b);

}  // namespace speclab::theory
