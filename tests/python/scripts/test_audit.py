"""The audit of verifiers in Python: exact rules pass, faulty ones are found, and a meaningless answer is reported with the draft and the coins that led to it."""

import contextlib
import importlib
import importlib.util
import io
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from audit import coins, enumeration, report, rules, tables, transport

# scripts/audit.py; the folder scripts/audit has the name "audit".
spec = importlib.util.spec_from_file_location("audit_script", ROOT / "scripts/audit.py")
audit_script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit_script)

ZEROS = ("zeros", "one-hot p", "one-hot q")  # kinds in which rows may share no token by chance
SMALL = report.Settings(max_gamma=2, max_vocab=3)


def on_golden_pair(verify, gamma):
    return enumeration.enumerate_table(verify, tables.golden(gamma), gamma, 1e-9)


class ExactRules(unittest.TestCase):
    def test_pass_with_their_expected_tokens(self):
        for verify, taus in ((rules.by_token, (1.75, 2.3125, 2.734375)), (rules.by_block, (1.75, 2.3675, 2.883625))):
            for finding, tau in zip(report.audit(verify, report.Settings(max_vocab=3)), taus):
                self.assertTrue(finding.exact, finding)
                self.assertLess(finding.joint_error, 1e-12)
                self.assertAlmostEqual(finding.golden_tau, tau, 12)
                self.assertLessEqual(finding.excess, 1e-12)

    def test_the_optimum_is_reached_by_blocks(self):
        generator = np.random.default_rng(3)
        for kind in tables.KINDS:
            table = tables.random_table(kind, 3, 2, generator)
            found = enumeration.enumerate_table(rules.by_block, table, 2, 1e-9)
            self.assertAlmostEqual(found.tau, enumeration.best_tokens(table, 2), 12, kind)


class NegativeControls(unittest.TestCase):
    """Errors at gamma 2 on the golden pair, enumerated in exact rationals elsewhere."""

    def test_each_is_found(self):
        for verify, error in (
            (rules.block_with_token_residual, 0.0066),
            (rules.stops_with_token_residual, 0.0098),
            (rules.stops_with_block_residual, 0.0334),
            (rules.first_token_is_exact, 0.0206),
        ):
            with self.subTest(verify.__name__):
                found = on_golden_pair(verify, 2)
                self.assertAlmostEqual(found.joint_error, error, 4)
                self.assertLess(found.first_error, 1e-12, "a check of the first token alone misses the fault")
                self.assertEqual(len(found.failure.history), 1)
                one, two = report.audit(verify, SMALL)
                self.assertTrue(one.exact)
                self.assertFalse(two.exact)
                self.assertEqual(two.failure.table, "golden pair")

    def test_expected_tokens_above_the_optimum(self):
        self.assertAlmostEqual(on_golden_pair(rules.first_token_is_exact, 3).tau, 2.973854, 6)
        self.assertGreater(report.audit(rules.first_token_is_exact, SMALL)[1].excess, 0.05)

    def test_a_fault_that_only_zeros_show(self):
        """It divides the residual by a sum that is zero only where p has zeros."""

        def verify(p, q, draft, coins):
            if any(p[i][x] == 0 for i, x in enumerate(draft)):
                return 0, int(np.argmax(p[0]))
            return rules.by_token(p, q, draft, coins)

        finding = report.audit(verify, SMALL)[0]
        self.assertFalse(finding.exact)
        self.assertRegex(finding.failure.table, "zeros|disjoint|one-hot")


class Tables(unittest.TestCase):
    def test_kinds(self):
        generator = np.random.default_rng(5)
        made = {kind: [tables.random_table(kind, 4, 2, generator) for _ in range(5)] for kind in tables.KINDS}
        for kind, several in made.items():
            for table in several:
                self.assertEqual(len(table.p), 1 + 4 + 16, "a row for every history of up to two tokens")
                for history, p in table.p.items():
                    q = table.q[history]
                    self.assertAlmostEqual(p.sum(), 1, 12)
                    self.assertAlmostEqual(q.sum(), 1, 12)
                    self.assertEqual(np.array_equal(p, q), kind == "p = q")
                    if kind == "one-hot p":
                        self.assertEqual(p.max(), 1)
                    if kind not in ZEROS:
                        self.assertEqual(not (p * q).any(), kind == "disjoint p and q")
        for name in ("p", "q"):
            rows = [row for table in made["zeros"] for row in getattr(table, name).values()]
            self.assertGreater(sum((row == 0).any() for row in rows), len(rows) / 2)
        self.assertGreater(len({tuple(row) for row in made["generic"][0].p.values()}), 20, "rows depend on the history")


class Coins(unittest.TestCase):
    def law(self, program):
        out = {}
        for probability, result in coins.walk(program):
            out[result] = out.get(result, 0) + probability
        return out

    def test_every_branch_once(self):
        found = self.law(lambda c: (c.bernoulli(0.25), c.categorical([1, 0, 3])))
        self.assertEqual(found, {(True, 0): 0.0625, (True, 2): 0.1875, (False, 0): 0.1875, (False, 2): 0.5625})

    def test_a_uniform_number_is_one_number(self):
        """Its comparisons agree with each other, so the number is not drawn again."""

        def program(c):
            u = c.uniform()
            return u < 0.5, u <= 0.25, 0.75 > u, u >= 0.25, u > 2

        found = self.law(program)
        self.assertEqual(
            found,
            {
                (True, True, True, False, False): 0.25,
                (True, False, True, True, False): 0.25,
                (False, False, True, True, False): 0.25,
                (False, False, False, True, False): 0.25,
            },
        )

    def test_a_rule_of_thresholds_is_exact(self):
        def verify(p, q, draft, coins):
            for i, x in enumerate(draft):
                if coins.uniform() >= p[i][x] / q[i][x]:
                    return i, inverse(rules.positive(p[i] - q[i]), coins.uniform())
            return len(draft), inverse(p[-1], coins.uniform())

        def inverse(weights, u):
            bounds = np.cumsum(weights) / weights.sum()
            return next(i for i, bound in enumerate(bounds) if u < bound or i == len(bounds) - 1)

        self.assertTrue(all(finding.exact for finding in report.audit(verify, SMALL)))
        self.assertAlmostEqual(on_golden_pair(verify, 2).tau, 2.3125, 12)

    def test_misuse(self):
        for misuse, words in (
            (lambda c: float(c.uniform()), "may only be compared"),
            (lambda c: c.uniform() + 1, "may only be compared"),
            (lambda c: c.uniform() == 0.5, "may only be compared"),
            (lambda c: c.bernoulli(math.nan), "NaN"),
            (lambda c: c.categorical([0, 0]), "positive, finite sum"),
            (lambda c: c.categorical([1, -1]), "numbers >= 0"),
            (lambda c: c.categorical([]), "positive, finite sum"),
        ):
            with self.assertRaisesRegex(coins.Misuse, words):
                list(coins.walk(misuse))

    def test_endless_runs_are_refused(self):
        with self.assertRaisesRegex(coins.Misuse, "more than 1000 runs"):
            list(coins.walk(lambda c: [c.bernoulli(0.5) for _ in range(20)], most_runs=1000))

        def until(stop, c):
            while c.bernoulli(0.5) != stop:
                c.categorical([1, 1])

        for stop in (True, False):  # the first run ends, or it does not
            with self.assertRaisesRegex(coins.Misuse, "number of draws seems to have no bound"):
                list(coins.walk(lambda c: until(stop, c)))


class Nonsense(unittest.TestCase):
    def failure(self, verify):
        finding = report.audit(verify, SMALL)[0]
        self.assertFalse(finding.exact)
        self.assertEqual(finding.tables, 0)
        return finding.failure

    def test_results(self):
        for result, words in (
            ((2, 0), "accepted 2 tokens of a draft of 1"),
            ((-1, 0), "accepted -1 tokens"),
            ((0, 4), "next token 4; the vocabulary is 0 to 3"),
            ((0, -1), "next token -1"),
            ((0.5, 1), "expected"),
            (None, "returned None"),
            ((1, 2, 3), "expected"),
        ):
            failure = self.failure(lambda p, q, draft, coins: result)
            self.assertRegex(failure.text, r"draft \[0\], .*" + words)
            self.assertEqual((failure.table, failure.history), ("golden pair", None))

    def test_an_exception_comes_with_draft_and_outcomes(self):
        def verify(p, q, draft, coins):
            if draft == (2,) and coins.categorical([1, 1, 1]) == 1:
                raise KeyError("seventeen")
            return rules.by_token(p, q, draft, coins)

        failure = self.failure(verify)
        self.assertRegex(failure.text, r"draft \[2\], outcomes of the coins \[1\]: KeyError: 'seventeen'")

    def test_other_randomness(self):
        calls = []

        def remembers(p, q, draft, coins):
            calls.append(draft)
            return 0, len(calls) % 2

        def changes_its_coins(p, q, draft, coins):
            calls.append(draft)
            return 0, coins.categorical([1, len(calls)])

        own = np.random.default_rng(1)
        for verify, words in (
            (lambda p, q, draft, coins: (0, int(np.random.random() < 0.5)), "drew from a generator"),
            (lambda p, q, draft, coins: (0, random.getrandbits(1)), "drew from a generator"),
            (lambda p, q, draft, coins: (0, int(np.random.default_rng().integers(2))), "generator of its own"),
            (lambda p, q, draft, coins: (0, int(own.integers(4))), "different results|weights"),
            (remembers, "different results"),
            (changes_its_coins, "randomness other than coins"),
        ):
            self.assertRegex(self.failure(verify).text, words)

    def test_changed_rows_are_the_verifiers_own(self):
        def verify(p, q, draft, coins):
            result = rules.by_token(p, q, draft, coins)
            p[:], q[:] = 0, 0
            return result

        self.assertTrue(report.audit(verify, SMALL)[1].exact)


class Temporary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *words, gamma=2):
        command = [sys.executable, ROOT / "scripts/audit.py", *words, "--gamma", str(gamma), "--vocab", "2"]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=os.environ)


class Script(Temporary):
    def test_exit_codes(self):
        exact = self.run_script("audit.rules:by_block")
        self.assertEqual(exact.returncode, 0, exact.stderr)
        self.assertRegex(exact.stdout, r"2\s+8\s+\d+\s+0\s+0\s+2\.3675\s+2\.3675\s+exact")
        wrong = self.run_script("audit.rules:first_token_is_exact", "--json")
        self.assertEqual(wrong.returncode, 1, wrong.stderr)
        found = json.loads(wrong.stdout)
        self.assertEqual([f["exact"] for f in found["findings"]], [True, False])
        self.assertEqual(found["findings"][1]["failure"]["history"], [0])

    def test_errors_of_the_user(self):
        (self.folder / "mine.py").write_text("number = 3\n", encoding="utf-8")
        for name, words in (
            ("no_such_module:verify", "no module no_such_module"),
            ("mine:verify", "no attribute 'verify'"),
            ("mine:number", "mine:number is int; expected a function"),
            ("mine", "expected MODULE:CALLABLE"),
        ):
            with self.subTest(name):
                stderr = io.StringIO()
                sys.path.insert(0, str(self.folder))
                with contextlib.redirect_stderr(stderr):
                    self.assertEqual(audit_script.main([name]), 2)
                sys.path.remove(str(self.folder))
                self.assertRegex(stderr.getvalue(), words)

    def test_the_verifier_of_the_page(self):
        """The ten lines of docs/audit.md, and the same lines with the fault that the page describes."""
        page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
        lines = re.search(r"```python\n(.*?)```", page, re.S)[1]
        (self.folder / "mine.py").write_text(lines, encoding="utf-8")
        self.assertEqual(self.run_script("mine:verify").returncode, 0)
        faulty = lines.replace("categorical(left)", "categorical(np.maximum(p[i] - q[i], 0))")
        self.assertNotEqual(faulty, lines)
        (self.folder / "faulty.py").write_text(faulty, encoding="utf-8")
        found = self.run_script("faulty:verify", "--path", str(self.folder))
        self.assertEqual(found.returncode, 1, found.stderr)
        self.assertIn("after the history [1]", found.stdout)
        self.assertIn("[0.598 0.25 0.102 0.05], the target's row is [0.55 0.25 0.15 0.05]", found.stdout)


# Two kernels with the interface of those that the adapter for vLLM runs. They are written for this test.
KERNELS = """
def sample_recovered_tokens_kernel(
    output_token_ids_ptr, cu_num_draft_tokens_ptr, draft_token_ids_ptr, draft_probs_ptr, target_probs_ptr, inv_q_ptr,
    vocab_size, BLOCK_SIZE: tl.constexpr, NO_DRAFT_PROBS: tl.constexpr, USE_FP64_GUMBEL: tl.constexpr,
):
    row, ids = tl.program_id(1) * vocab_size, tl.arange(0, BLOCK_SIZE)
    inside = ids < vocab_size
    if NO_DRAFT_PROBS:
        drafted = tl.load(draft_token_ids_ptr + tl.program_id(1))
        left = tl.load(target_probs_ptr + row + ids, mask=inside & (ids != drafted), other=0.0)
    else:
        p = tl.load(target_probs_ptr + row + ids, mask=inside, other=0.0)
        q = tl.load(draft_probs_ptr + row + ids, mask=inside, other=0.0)
        left = tl.maximum(p - q, 0.0)
    score = left * tl.load(inv_q_ptr + ids, mask=inside, other=0.0)
    _, winner = tl.max(tl.where(inside, score, float("-inf")), axis=0, return_indices=True)
    tl.store(output_token_ids_ptr + tl.program_id(1), winner)


def rejection_random_sample_kernel(
    output_token_ids_ptr, cu_num_draft_tokens_ptr, draft_token_ids_ptr, draft_probs_ptr, target_probs_ptr, bonus_token_ids_ptr,
    recovered_token_ids_ptr, uniform_probs_ptr, is_greedy_ptr, max_spec_len, vocab_size, synthetic_conditional_rates_ptr,
    NO_DRAFT_PROBS: tl.constexpr, SYNTHETIC_MODE: tl.constexpr,
):
    count = tl.load(cu_num_draft_tokens_ptr)
    for i in range(count):
        token = tl.load(draft_token_ids_ptr + i)
        p = tl.load(target_probs_ptr + i * vocab_size + token)
        q = 1 if NO_DRAFT_PROBS else tl.load(draft_probs_ptr + i * vocab_size + token)
        if p / q < tl.load(uniform_probs_ptr + i):
            tl.store(output_token_ids_ptr + i, tl.load(recovered_token_ids_ptr + i))
            return
        tl.store(output_token_ids_ptr + i, token)
    tl.store(output_token_ids_ptr + count, tl.load(bonus_token_ids_ptr))
"""


class Adapters(Temporary):
    def verdict(self, kernels, entry="verify", adapter="vllm_rejection", gamma=2):
        file = self.folder / "kernels.py"
        file.write_text("import no_such_module\n" + kernels, encoding="utf-8")
        with unittest.mock.patch.dict(os.environ, SPECLAB_AUDIT_FILE=str(file)):
            return self.run_script(f"audit.adapters.{adapter}:{entry}", gamma=gamma)

    def test_triton_kernels(self):
        self.check_kernels("vllm_rejection", 2, {"verify": "2.3125", "verify_copied": "1.430625"})

    @unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed; scripts/oracle.sh runs this")
    def test_kernels_that_triton_runs(self):
        self.check_kernels("vllm_triton", 1, {"verify": "1.75", "verify_copied": "1.325"})  # the interpreter is slow

    def check_kernels(self, adapter, gamma, taus):
        faults = {
            "verify": (
                ("p / q <", "p <"),
                ("tl.maximum(p - q, 0.0)", "p"),
                ("recovered_token_ids_ptr + i", "recovered_token_ids_ptr"),
            ),
            "verify_copied": (("inside & (ids != drafted)", "inside"), ("p / q <", "q - p <")),
        }
        for entry, tau in taus.items():
            exact = self.verdict(KERNELS, entry, adapter, gamma)
            self.assertEqual(exact.returncode, 0, exact.stderr + exact.stdout)
            self.assertIn(f" {tau} ", exact.stdout)
            for right, wrong in faults[entry][: gamma + 1]:  # the third one shows from gamma 2 on
                with self.subTest(entry, fault=wrong):
                    self.assertIn(right, KERNELS)
                    faulty = self.verdict(KERNELS.replace(right, wrong), entry, adapter, gamma)
                    self.assertEqual(faulty.returncode, 1, faulty.stderr + faulty.stdout)
                    self.assertIn("WRONG", faulty.stdout)

    def test_another_file(self):
        other = self.verdict(KERNELS.replace("rejection_random_sample_kernel", "renamed"))
        self.assertEqual(other.returncode, 2)
        self.assertIn("has no function rejection_random_sample_kernel", other.stderr)
        missing = self.run_script("audit.adapters.vllm_rejection:verify")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("set SPECLAB_AUDIT_FILE", missing.stderr)


def tree_kernel(reads=lambda p: p, keeps_drafted=False):
    """A kernel with the interface of the one that the adapter for SGLang calls, for chains. It is written for this test.
    `reads` and `keeps_drafted` plant faults."""

    def kernel(predicts, accept_index, accepted, ids, index, child, sibling, tests, last, target, draft, *thresholds):
        for i, tokens in enumerate(ids):
            node, row = 0, None
            while child[i][node] >= 0:
                below = child[i][node]
                row = target[i][node].astype(float)
                if tests[i][node] > reads(row[tokens[below]]):
                    row[tokens[below]] *= keeps_drafted
                    break
                predicts[index[i][node]] = tokens[below]
                accepted[i] += 1
                node, row = below, None
            sums = np.cumsum(target[i][node] if row is None else row)
            predicts[index[i][node]] = np.searchsorted(sums, last[i] * sums[-1], side="right")

    return kernel


class NumbersForKernels(unittest.TestCase):
    """The adapter for SGLang, with stand-ins for PyTorch and for the kernel."""

    def audit(self, kernel):
        torch = types.SimpleNamespace(
            tensor=lambda values, dtype, device: np.array(values, dtype),
            int32=np.int32,
            int64=np.int64,
            float32=np.float32,
            cuda=types.SimpleNamespace(is_available=lambda: True),
            get_rng_state=lambda: types.SimpleNamespace(numpy=lambda: np.zeros(1)),
        )
        modules = {"torch": torch, "sgl_kernel": types.SimpleNamespace(tree_speculative_sampling_target_only=kernel)}
        with unittest.mock.patch.dict(sys.modules, modules):
            sys.modules.pop("audit.adapters.sglang_rejection", None)
            adapter = importlib.import_module("audit.adapters.sglang_rejection")
            return report.audit(adapter.verify, SMALL)

    def test_an_exact_kernel(self):
        one, two = self.audit(tree_kernel())
        self.assertTrue(one.exact, one)
        self.assertTrue(two.exact, two)
        self.assertAlmostEqual(two.golden_tau, 1 + 0.325 + 0.325**2, 12)

    def test_faults(self):
        for kernel, words in (
            (tree_kernel(keeps_drafted=True), "a threshold that the adapter does not know"),
            (tree_kernel(reads=lambda p: p**2), "a threshold that the adapter does not know"),
            (tree_kernel(reads=lambda p: 0), "the next token has the law"),
        ):
            finding = self.audit(kernel)[0]
            self.assertFalse(finding.exact)
            self.assertRegex(finding.failure.text, words)

    def test_without_a_gpu(self):
        absent = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
        kernel = types.SimpleNamespace(tree_speculative_sampling_target_only=None)
        with unittest.mock.patch.dict(sys.modules, {"torch": absent, "sgl_kernel": kernel}):
            sys.modules.pop("audit.adapters.sglang_rejection", None)
            with self.assertRaisesRegex(audit_script.Refused, "needs a CUDA device"):
                audit_script.load("audit.adapters.sglang_rejection:verify")


class OptimalTransport(unittest.TestCase):
    P, Q = tables.GOLDEN_P, tables.GOLDEN_Q

    def test_programs_that_are_too_large(self):
        self.assertEqual(len(transport.independent_children([1 / 50] * 50, 2)), 2500)
        for make in (transport.independent_children, transport.children_without_replacement):
            with self.assertRaisesRegex(transport.TooLarge, "2 children and 51 tokens.*132651.*at most 125000"):
                make([1 / 51] * 51, 2)
        laws = {x: 1 / 400 for x in range(400)}
        with self.assertRaisesRegex(transport.TooLarge, "400 drafts and 400 outcomes.*160000"):
            transport.best_coupling(laws, laws, lambda draft, outcome: draft == outcome)

    @unittest.skipIf(importlib.util.find_spec("scipy"), "SciPy is installed")
    def test_without_scipy(self):
        with self.assertRaisesRegex(ModuleNotFoundError, "optimal transport needs the Python package scipy"):
            rules.optimal_transport(self.P, {(0,): 1.0}, (0,), None)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_several_children_of_the_golden_pair(self):
        for make, k, best in (
            (transport.independent_children, 1, 0.75),
            (transport.independent_children, 2, 0.9475),
            (transport.independent_children, 3, 0.992625),
            (transport.children_without_replacement, 2, 0.972756),
            (transport.children_without_replacement, 3, 1),
        ):
            drafts = make(self.Q, k)
            law, kept = np.zeros(4), 0

            def step(coins):
                children = list(drafts)[coins.categorical(drafts.values())]
                return children, rules.optimal_transport(self.P, drafts, children, coins)

            for probability, (children, token) in coins.walk(step):
                law[token] += probability
                kept += probability * (token in children)
            np.testing.assert_allclose(law, self.P, atol=1e-12)
            self.assertAlmostEqual(kept, best, 6)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_a_chain(self):
        for finding, tau in zip(report.audit(rules.by_transport, SMALL), (1.75, 2.3125)):
            self.assertTrue(finding.exact, finding)
            self.assertAlmostEqual(finding.golden_tau, tau, 9)

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed; scripts/oracle.sh runs this")
    def test_full_information(self):
        """A verifier that sees both laws of whole texts, not only the rows of the drafted path: 12/9 tokens of the toy of Sun et
        al. 2024, where blocks accept 11/9."""
        p, q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
        target, drafts = ({(a, b): row[a] * row[b] for a in (0, 1) for b in (0, 1)} for row in (p, q))

        def common(draft, text):
            return (draft[0] == text[0]) * (1 + (draft[1] == text[1]))

        self.assertAlmostEqual(transport.best_coupling(drafts, target, common).gain, 12 / 9, 9)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed; scripts/oracle.sh runs this")
class TorchCoins(unittest.TestCase):
    def audit(self, decide):
        """A token rule in PyTorch. `decide` compares uniform numbers with the ratios."""
        import torch

        from audit.adapters.torch_coins import drawing_from

        def verify(p, q, draft, coins):
            p, q, at = torch.tensor(p), torch.tensor(q), range(len(draft))
            with drawing_from(coins):
                ratio = p[at, list(draft)] / q[at, list(draft)]
                accepted = int((~decide(torch, ratio)).cumsum(0).eq(0).sum())
                row = p[-1] if accepted == len(draft) else (p[accepted] - q[accepted]).clamp(min=0)
                return accepted, int(torch.multinomial(row, 1))

        return report.audit(verify, SMALL)

    def test_forms_of_a_comparison(self):
        for decide in (
            lambda torch, ratio: torch.rand_like(ratio) <= ratio,
            lambda torch, ratio: torch.rand(ratio.shape) < ratio,
            lambda torch, ratio: ratio >= torch.rand(*ratio.shape),
            lambda torch, ratio: ~(torch.rand(2, *ratio.shape)[1] > ratio),
            lambda torch, ratio: torch.ge(ratio, torch.rand_like(ratio)),
            lambda torch, ratio: torch.lt(torch.rand_like(ratio), ratio),
        ):
            found = self.audit(decide)
            self.assertTrue(all(f.exact for f in found), found)
            self.assertAlmostEqual(found[1].golden_tau, 2.3125, 12)

    def test_faults_and_misuse(self):
        for decide, words in (
            (lambda torch, ratio: torch.rand_like(ratio) <= ratio * 0.9, "the next token has the law"),
            (lambda torch, ratio: torch.rand(1)[0] <= ratio, "the next token has the law"),
            (lambda torch, ratio: torch.rand_like(ratio) + 0 <= ratio, "which may only be compared"),
            (lambda torch, ratio: torch.log(torch.rand_like(ratio)) <= ratio, "which may only be"),
            (lambda torch, ratio: torch.rand_like(ratio).log() <= ratio, "which may only be"),
            (lambda torch, ratio: torch.bernoulli(ratio.clamp(max=1)) > 0, "torch, whose law is not enumerated"),
            (lambda torch, ratio: torch.empty(2).uniform_() <= ratio, "whose law is not enumerated"),
        ):
            found = self.audit(decide)[1]
            self.assertFalse(found.exact)
            self.assertRegex(found.failure.text, words)

    def test_the_functions_are_restored(self):
        import torch

        before = torch.rand, torch.Tensor.uniform_, torch.multinomial
        self.audit(lambda torch, ratio: torch.rand_like(ratio) + 0 <= ratio)
        self.assertEqual((torch.rand, torch.Tensor.uniform_, torch.multinomial), before)


# A copy of the function of transformers with one more argument, as research code has it: our own token rule.
FORK = """
def _speculative_sampling(
    candidate_input_ids, candidate_logits, candidate_length, new_logits, is_done_candidate, factor=1, stop=None
):
    assert not is_done_candidate.any() and not stop(candidate_input_ids, scores=None)
    p, q = new_logits.softmax(-1)[0], candidate_logits.softmax(-1)[0]
    at, draft = range(candidate_length), candidate_input_ids[0, -candidate_length:]
    ratio = factor * p[at, draft] / q[at, draft]
    accepted = (~(torch.rand_like(ratio) <= ratio)).cumsum(0).eq(0).sum()
    row = p[-1] if accepted == candidate_length else (p[accepted] - q[accepted]).clamp(min=0)
    return torch.cat((draft[:accepted], torch.multinomial(row, 1)))[None], accepted
"""


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed; scripts/oracle.sh runs this")
class TransformersFork(unittest.TestCase):
    def load(self, arguments, text=FORK):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "fork.py")
            file.write_text(text)
            environment = {"SPECLAB_AUDIT_FILE": str(file), "SPECLAB_AUDIT_ARGUMENTS": arguments}
            with unittest.mock.patch.dict(os.environ, environment):
                sys.modules.pop("audit.adapters.transformers_fork", None)
                return audit_script.load("audit.adapters.transformers_fork:verify")

    def test_the_arguments_choose_the_variant(self):
        found = report.audit(self.load("{}"), SMALL)
        self.assertTrue(all(f.exact for f in found), found)
        self.assertAlmostEqual(found[1].golden_tau, 2.3125, 12)
        self.assertFalse(report.audit(self.load('{"factor": 0.9}'), SMALL)[1].exact)

    def test_what_is_refused(self):
        for arguments, text, words in (
            ('{"factr": 0.9}', FORK, "has no argument factr; it has candidate_input_ids, .*factor, stop"),
            ("{}", "x = 1", "has no function _speculative_sampling"),
        ):
            with self.assertRaisesRegex(audit_script.Refused, words):
                self.load(arguments, text)

    def test_an_impossible_answer(self):
        for last, words in (("accepted + 1", "are said to be accepted"), ("accepted - 1", "expected one more")):
            fork = FORK.replace("[None], accepted", f"[None], {last}")
            self.assertRegex(report.audit(self.load("{}", fork), SMALL)[0].failure.text, words)


if __name__ == "__main__":
    unittest.main()
