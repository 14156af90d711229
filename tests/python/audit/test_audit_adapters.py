"""The adapters that audit verifiers of other projects, with stand-ins for these projects: exact ones pass and faulty ones are found."""

import importlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

import numpy as np
from audit_laboratory import SMALL, Temporary, audit_script

from audit import report

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
            for right, wrong in faults[entry][: gamma + 1]:  # at gamma 1 the third fault has no effect
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


# A function with the name and arguments of the one in transformers, and one more argument, as in research code. The body is our own
# token rule.
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
