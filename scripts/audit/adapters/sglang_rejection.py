"""SGLang's verifier of trees, run on chains: the CUDA kernel tree_speculative_sampling_target_only of sgl_kernel.

    PYTHON scripts/audit.py audit.adapters.sglang_rejection:verify

PYTHON has numpy, torch and sgl_kernel, and the machine has a CUDA device. The arguments are those of
sgl-kernel/csrc/speculative/speculative_sampling.cu at commit 120affb9. The rule does not use the draft's probabilities: it
accepts a drafted token with the target's probability. Otherwise it draws from the target's row without this token. Both
acceptance thresholds are 1, their default; with 1, SGLang claims to be lossless. The kernel takes its random numbers as
tensors, so the adapter makes them with plain_numbers.py. The kernel computes in float32.
"""

import numpy as np
import torch
from sgl_kernel import tree_speculative_sampling_target_only as kernel

from audit.adapters.plain_numbers import Numbers

if not torch.cuda.is_available():
    raise ValueError("the kernel of SGLang needs a CUDA device, and PyTorch finds none")


def verify(p, q, draft, coins):
    numbers = Numbers(coins)
    for i, x in enumerate(draft):
        numbers.draw([p[i][x]])
    accepted = numbers.only_result(lambda points: [run[0] for run in _run(p, draft, [(*u, 0.5) for u in points])])
    row = p[accepted].copy()
    if accepted < len(draft):
        row[draft[accepted]] = 0
    total = row.sum()
    numbers.draw(np.cumsum(row / total) if total > 0 else [])
    return numbers.only_result(lambda points: _run(p, draft, points))


def _run(p, draft, points):
    """One launch with a sequence for each point. A point has the random numbers of the tests, then the number of the last token.
    Returns [(accepted, next token)]."""
    count, nodes = len(points), len(draft) + 1

    def tensor(values, dtype):
        return torch.tensor(values, dtype=dtype, device="cuda")

    def repeated(row, dtype):
        return tensor([row] * count, dtype)

    predicts = repeated([-1] * nodes, torch.int32).reshape(-1)
    accept_index = repeated([-1] * nodes, torch.int32)
    accept_count = tensor([0] * count, torch.int32)
    kernel(
        predicts,
        accept_index,
        accept_count,
        repeated([0, *draft], torch.int64),  # node 0 is the pending token
        tensor([[first * nodes + node for node in range(nodes)] for first in range(count)], torch.int64),
        repeated([*range(1, nodes), -1], torch.int64),  # first child
        repeated([-1] * nodes, torch.int64),  # next sibling
        tensor([[*point[:-1], 0.5] for point in points], torch.float32),  # the test of node i reads number i - 1
        tensor([point[-1] for point in points], torch.float32),
        repeated(p.tolist(), torch.float32),
        repeated(np.zeros_like(p).tolist(), torch.float32),
        1.0,
        1.0,
        True,
    )
    after, found = predicts.tolist(), []  # after[node]: the token after it
    for i, accepted in enumerate(accept_count.tolist()):
        emitted = after[i * nodes : i * nodes + accepted + 1]
        if emitted[:-1] != list(draft[:accepted]):
            raise ValueError(f"it accepted {accepted} tokens of the draft {list(draft)} and emitted {emitted}")
        found.append((accepted, emitted[-1]))
    return found
