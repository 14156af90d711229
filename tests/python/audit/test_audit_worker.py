"""The adapter for the sampler of vLLM's newer worker, with a stand-in for it: exact rules pass, and planted faults are found."""

import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
from audit_laboratory import audit_script

from audit import coins, enumeration, tables
from audit.adapters import triton_stand_in

# Two files with the interface of those that the adapter runs. They are written for this test: block verification and the token rule
# on logits that are logarithms of probabilities.
RACE = """
@triton.jit
def race(logits, tokens, mask, seed, position):
    noise = -tl.log(-tl.log(murmur3_uniform64(seed, position, tokens)))
    return tl.max(tl.where(mask, logits + noise, float("-inf")), axis=0, return_indices=True)
"""
SAMPLER = """
import no_such_module

@triton.jit
def weights(target, draft, i, tokens, vocab, rho):
    p = tl.exp(tl.load(target + i * vocab + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32))
    q = tl.exp(tl.load(draft + i * vocab + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32))
    return tl.maximum(rho * p - q, 0.0)

@triton.jit
def _judge_kernel(
    count, ratios, target, draft, tokens, states, seeds, positions, temps, vocab, gamma, blocks,
    BLOCK_SIZE: tl.constexpr, HAS_DRAFT: tl.constexpr, BY_BLOCK: tl.constexpr,
):
    state = tl.load(states + tl.program_id(0)).to(tl.int64)
    seed = tl.load(seeds + state)
    kept, rho, testing = tl.zeros((), tl.int64), tl.full((), 1.0, tl.float32), True
    for i in range(gamma):
        x = tl.load(tokens + i + 1)
        log_p, log_q = tl.load(target + i * vocab + x), 0.0
        if HAS_DRAFT:
            log_q = tl.load(draft + (state * gamma + i) * vocab + x) / tl.load(temps + state)
        u = tl_rand32(seed, tl.load(positions + i), includes_zero=False)
        if BY_BLOCK:
            rho = tl.minimum(rho * tl.exp(log_p - log_q), 1.0)
            h = rho
            if i < gamma - 1:
                if HAS_DRAFT:
                    left = 0.0
                    for b in range(blocks):
                        ids = b * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
                        left += tl.sum(weights(target, draft + state * gamma * vocab, i + 1, ids, vocab, rho), axis=0)
                else:
                    left = rho * (1 - tl.exp(tl.load(target + (i + 1) * vocab + tl.load(tokens + i + 2))))
                h = tl.where(left + 1 - rho > 0, left / (left + 1 - rho), 1.0)
            kept = tl.where(u <= h, i + 1, kept)
        elif testing:
            testing = log_p > tl.log(u) + log_q
            kept += testing
        tl.store(ratios + i, rho)
    tl.store(count, kept)

@triton.jit(do_not_specialize=["vocab"])
def _race_kernel(
    best, winners, count, ratios, target, draft, tokens, states, seeds, positions, vocab, gamma,
    BLOCK_SIZE: tl.constexpr, HAS_DRAFT: tl.constexpr, BY_BLOCK: tl.constexpr,
):
    block, i, state = tl.program_id(1), tl.load(count), tl.load(states)
    first = block * BLOCK_SIZE
    ids = first + tl.arange(0, BLOCK_SIZE)
    mask = ids < vocab
    logits = tl.load(target + i * vocab + ids, mask=mask, other=float("-inf"))
    if i < gamma and HAS_DRAFT:
        rho = tl.load(ratios + i - 1, mask=BY_BLOCK and i > 0, other=1.0)
        logits = tl.log(weights(target, draft + state * gamma * vocab, i, ids, vocab, rho))
    elif i < gamma:
        logits = tl.where(ids != tl.load(tokens + i + 1), logits, float("-inf"))
    score, winner = race(logits, ids, mask, tl.load(seeds + state), tl.load(positions + i))
    tl.store(winners + block, first + winner)
    tl.store(best + block, score)

@triton.jit
def _insert_kernel(sampled, count, best, winners, tokens, blocks, PADDED: tl.constexpr):
    i, b = tl.load(count), tl.arange(0, PADDED)
    for j in range(i):
        tl.store(sampled + j, tl.load(tokens + j + 1))
    winner = tl.argmax(tl.load(best + b, mask=b < blocks, other=float("-inf")), axis=0)
    tl.store(sampled + i, tl.load(winners + winner))
    tl.store(count, i + 1)

def rejection_sample(
    target_logits: torch.Tensor, draft_logits, draft_sampled, cu_num_logits, pos, idx_mapping, expanded_idx_mapping,
    expanded_local_pos, temperature, seed, num_speculative_steps, use_fp64, use_block_verification,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, vocab = target_logits.shape
    gamma, blocks = num_speculative_steps, triton.cdiv(vocab, 1024)
    modes = {"HAS_DRAFT": draft_logits is not None, "BY_BLOCK": use_block_verification}
    sampled = draft_sampled.new_empty(1, rows, dtype=torch.int64)
    count = sampled.new_empty(1, dtype=torch.int32)
    ratios = target_logits.new_empty(rows, dtype=torch.float32)
    _judge_kernel[(1,)](
        count, ratios, target_logits, draft_logits, draft_sampled, idx_mapping, seed, pos, temperature, vocab, gamma, blocks,
        BLOCK_SIZE=1024, **modes, num_warps=1,
    )
    best = target_logits.new_empty(blocks, dtype=torch.float64)
    winners = draft_sampled.new_empty(blocks, dtype=torch.int64)
    _race_kernel[(1, blocks)](
        best, winners, count, ratios, target_logits, draft_logits, draft_sampled, idx_mapping, seed, pos, vocab, gamma,
        BLOCK_SIZE=1024, **modes,
    )
    _insert_kernel[(1,)](sampled, count, best, winners, draft_sampled, blocks, PADDED=triton.next_power_of_2(blocks))
    return sampled, count
"""
GENERIC = tables.random_table("generic", 3, 2, np.random.default_rng(107))  # three tokens: two blocks


def load(entry, sampler=SAMPLER, race=RACE):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "spec_decode", "sampler.py")
        for path, text in ((file, sampler), (pathlib.Path(folder, "sample", "gumbel.py"), race)):
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
        with unittest.mock.patch.dict(os.environ, SPECLAB_AUDIT_FILE=str(file)):
            sys.modules.pop("audit.adapters.vllm_worker", None)
            return audit_script.load(f"audit.adapters.vllm_worker:{entry}")


def on(table, verify, gamma=2):
    return enumeration.enumerate_table(verify, table, gamma, 1e-9)


class Worker(unittest.TestCase):
    def test_exact_rules(self):
        for entry, tau in (
            ("verify_block", 2.3675),
            ("verify", 2.3125),
            ("verify_block_copied", None),  # the enumeration of the golden pair takes a second
            ("verify_copied", None),
        ):
            verify = load(entry)
            found = on(GENERIC, verify)
            self.assertIsNone(found.failure, entry)
            self.assertLess(found.joint_error, 1e-12)
            if tau is not None:
                self.assertAlmostEqual(on(tables.golden(2), verify).tau, tau, 12)

    def test_zeros(self):
        for kind in ("zeros", "disjoint p and q", "one-hot p", "one-hot q", "p = q"):
            table = tables.random_table(kind, 2, 2, np.random.default_rng(2))
            for entry in ("verify_block", "verify"):
                self.assertLess(on(table, load(entry)).joint_error, 1e-12, (kind, entry))

    def check_faults(self, entry, faults):
        for right, wrong in faults:
            with self.subTest(entry, fault=wrong):
                self.assertIn(right, SAMPLER)
                found = on(GENERIC, load(entry, SAMPLER.replace(right, wrong)))
                self.assertGreater(found.joint_error, 1e-3)
                self.assertIsNotNone(found.failure)

    def test_faults_of_block_verification(self):
        self.check_faults(
            "verify_block",
            (
                ("tl.minimum(rho * tl.exp(log_p - log_q), 1.0)", "rho * tl.exp(log_p - log_q)"),
                ("mask=BY_BLOCK and i > 0", "mask=False"),  # now with the residual of the token rule
                (
                    "tl.load(positions + i), includes_zero",
                    "tl.load(positions), includes_zero",
                ),  # now with one random number for all tests
                ("for b in range(blocks)", "for b in range(1)"),
            ),
        )

    def test_faults_of_the_last_token(self):
        self.check_faults("verify", (("first + winner", "winner"), ("tl.argmax(", "0 * tl.argmax(")))

    def test_faults_of_the_other_modes(self):
        self.check_faults("verify", (("tl.log(u) + log_q", "tl.log(u) - log_q"),))
        self.check_faults("verify_copied", (("ids != tl.load(tokens + i + 1)", "ids >= 0"),))
        self.check_faults("verify_block_copied", (("left = rho * (1 -", "left = (1 -"),))

    def test_the_entries_of_another_request(self):
        for right, wrong in (("draft + (state * gamma + i)", "draft + i"), ("temps + state", "temps")):
            self.assertIn(right, SAMPLER)
            with self.assertRaisesRegex(enumeration.Nonsense, "NaN"):
                on(GENERIC, load("verify_block", SAMPLER.replace(right, wrong)))

    def test_noise(self):
        for right, wrong, words in (
            ("-tl.log(-tl.log(", "-tl.log((", r"noise after the operations \['log', '-'\]"),
            ("position, tokens)", "position, tokens % 2)", "noise of the same seed, position and token"),
        ):
            self.assertIn(right, RACE)
            with self.assertRaisesRegex(enumeration.Nonsense, words):
                on(GENERIC, load("verify_block", race=RACE.replace(right, wrong)))

    def test_another_file(self):
        with self.assertRaisesRegex(audit_script.Refused, "has no function rejection_sample; .* another version"):
            load("verify", SAMPLER.replace("def rejection_sample", "def renamed"))

    def test_an_impossible_answer(self):
        wrong = SAMPLER.replace("tl.load(tokens + j + 1))", "tl.load(tokens + j + 1) + 1)")
        with self.assertRaisesRegex(enumeration.Nonsense, "do not begin with the accepted part of the draft"):
            on(GENERIC, load("verify", wrong))


class StandIn(unittest.TestCase):
    def test_operators_do_not_change_other_names(self):
        for change in ("+= 2", "-= 2", "*= 3", "&= 2", "|= 4"):
            names = {"a": triton_stand_in.value(1)}
            exec(f"b = a\nb {change}", names)
            self.assertEqual(names["a"], 1, change)
            self.assertNotEqual(names["b"], 1, change)

    def test_a_race_of_blocks(self):
        """The winner of the best block is each token with a probability proportional to its weight."""
        weights, language = np.array([1.0, 2.0, 0.0, 3.0, 0.0, 0.0, 4.0]), triton_stand_in.Language()

        def run(c):
            heats, best = triton_stand_in.Heats(c), (-np.inf, None)
            for block in ((0, 1), (2, 3), (4, 5), (6,)):
                score, index = language.max(triton_stand_in.Race(heats, weights[list(block)]), 0, True)
                if score >= best[0]:  # takes the last of equal scores, so equal scores would change the law
                    best = score, block[int(index)]
            return best[1]

        law = np.zeros(7)
        for probability, token in coins.walk(run):
            law[token] += probability
        np.testing.assert_allclose(law, weights / 10, atol=1e-15)

    def test_the_logarithm_of_a_number(self):
        language, x = triton_stand_in.Language(), triton_stand_in.value(np.log(0.2))
        for compare in (
            lambda log_u: x > log_u + np.log(0.5),  # u < 0.4
            lambda log_u: 1.0 + log_u < x + np.log(2) + 1,
            lambda log_u: log_u <= x + np.log(2),
            lambda log_u: not log_u > x + np.log(2),
        ):
            law = dict((bool(result), p) for p, result in coins.walk(lambda c: compare(language.log(c.uniform()))))
            self.assertAlmostEqual(law[True], 0.4, 12)

    def test_loads_outside_the_mask_are_not_made(self):
        language, memory = triton_stand_in.Language(), triton_stand_in.Pointer(np.array([1.0, 2.0]))
        loaded = language.load(memory + language.arange(0, 4), mask=language.arange(0, 4) < 2, other=-1.0)
        self.assertEqual(loaded.tolist(), [1, 2, -1, -1])
        self.assertEqual(language.load(memory + 9, mask=False, other=3.0), 3)


if __name__ == "__main__":
    unittest.main()
