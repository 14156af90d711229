"""The kernels of vllm_rejection.py, run by Triton itself: compiled if PyTorch finds a GPU, else by Triton's interpreter.

    SPECLAB_AUDIT_FILE=FOLDER/vllm/v1/sample/rejection_sampler.py PYTHON scripts/audit.py audit.adapters.vllm_triton:verify
    SPECLAB_AUDIT_FILE=... PYTHON scripts/audit.py audit.adapters.vllm_triton:verify_copied

PYTHON has numpy, torch and triton; vLLM need not be installed. The kernels read their random numbers from memory, so the adapter
gives them plain numbers:

- The tests of the drafted tokens read uniform numbers. plain_numbers.py chooses them on both sides of p/q.
- The race for the correction token reads noise. The coins choose the winner with the adapter's own weights, max(p - q, 0) or
  p without the drafted token. The noise then makes the winner's score larger than the others by the factor 1 + LEAD, so a
  kernel with other weights names another winner, and the audit finds a wrong law.

Probabilities and noise are float64 here, so that rounding does not decide. See vllm_rejection.py for what is not run.
"""

import os

import numpy as np
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is made, and by triton.language when it is imported

import triton
import triton.language as tl

from audit.adapters.foreign_file import functions_of_file, path_of_user
from audit.adapters.plain_numbers import Numbers

EDGE = 1e-9  # see Numbers of plain_numbers.py
LEAD = 1e-6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
recover, reject = map(
    triton.jit,
    functions_of_file(
        path_of_user("vllm/v1/sample/rejection_sampler.py of a clone or wheel of vLLM"),
        "sample_recovered_tokens_kernel",
        "rejection_random_sample_kernel",
        keep_annotations=True,
        tl=tl,
        triton=triton,
    ),
)


def verify(p, q, draft, coins):
    ratios = [p[i][x] / q[i][x] for i, x in enumerate(draft)]
    return _verify(p, q, draft, coins, ratios, lambda i: np.maximum(p[i] - q[i], 0))


def verify_copied(p, q, draft, coins):
    def without_draft(i):
        row = p[i].copy()
        row[draft[i]] = 0
        return row

    return _verify(p, None, draft, coins, [p[i][x] for i, x in enumerate(draft)], without_draft)


def _verify(p, q, draft, coins, ratios, weights):
    """`ratios`: the probability that a drafted token is accepted, if all before it are. `weights(i)`: the law of the correction
    in place of draft[i], not normalised."""
    gamma, numbers = len(draft), Numbers(coins, EDGE)
    for ratio in ratios:
        numbers.draw([ratio])
    no_noise, no_bonus = np.ones(p.shape[1]), 0
    accepted = numbers.only_result(lambda points: [_run(p, q, draft, point, no_noise, no_bonus)[0] for point in points])
    noise, bonus = no_noise, no_bonus
    if accepted == gamma:
        bonus = coins.categorical(p[gamma])
    else:
        row = weights(accepted)
        winner = coins.categorical(row)
        noise = 1 / np.where(row > 0, row, 1e-6)
        noise[winner] *= 1 + LEAD
    return numbers.only_result(lambda points: [_run(p, q, draft, point, noise, bonus) for point in points])


def _run(p, q, draft, uniforms, noise, bonus):
    """Launches both kernels for one sequence. Returns (accepted, next token)."""
    gamma, vocab = len(draft), p.shape[1]

    def tensor(values, dtype):
        return torch.tensor(np.asarray(values), dtype=dtype, device=DEVICE).reshape(-1)

    common = {
        "cu_num_draft_tokens_ptr": tensor([gamma], torch.int32),
        "draft_token_ids_ptr": tensor(draft, torch.int32),
        "draft_probs_ptr": None if q is None else tensor(q, torch.float64),
        "target_probs_ptr": tensor(p[:gamma], torch.float64),
        "vocab_size": vocab,
        "NO_DRAFT_PROBS": q is None,
    }
    recovered, output = tensor([-1] * gamma, torch.int32), tensor([-1] * (gamma + 1), torch.int32)
    recover[(1, gamma)](
        output_token_ids_ptr=recovered,
        inv_q_ptr=tensor(noise, torch.float64),
        BLOCK_SIZE=triton.next_power_of_2(vocab),
        USE_FP64_GUMBEL=True,
        **common,
    )
    reject[(1,)](
        output_token_ids_ptr=output,
        bonus_token_ids_ptr=tensor([bonus], torch.int32),
        recovered_token_ids_ptr=recovered,
        uniform_probs_ptr=tensor(uniforms, torch.float64),
        is_greedy_ptr=tensor([False], torch.bool),
        max_spec_len=gamma,
        synthetic_conditional_rates_ptr=None,
        SYNTHETIC_MODE=False,
        **common,
    )
    emitted = [token for token in output.tolist() if token >= 0]  # -1 marks what was not emitted
    return len(emitted) - 1, emitted[-1]
