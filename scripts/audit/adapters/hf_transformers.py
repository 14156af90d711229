"""Assisted decoding with sampling in Hugging Face transformers: `_speculative_sampling` of transformers.generation.utils.

    PYTHON scripts/audit.py audit.adapters.hf_transformers:verify

PYTHON has numpy, torch and transformers. The function is private there, so another version may have another signature.
"""

import torch
from transformers.generation import utils

from audit.adapters.torch_coins import drawing_from, logits


def verify(p, q, draft, coins):
    with drawing_from(coins):
        tokens, accepted = utils._speculative_sampling(
            candidate_input_ids=torch.tensor([list(draft)]),
            candidate_logits=logits(q),
            candidate_length=len(draft),
            new_logits=logits(p),
        )
    emitted = tokens[0].tolist()
    if len(emitted) != int(accepted) + 1:
        raise ValueError(
            f"{len(emitted)} tokens with {int(accepted)} accepted ones; expected one more than the accepted ones"
        )
    if emitted[:-1] != list(draft[: len(emitted) - 1]):
        raise ValueError(f"the emitted tokens {emitted} do not begin with the accepted part of the draft {list(draft)}")
    return len(emitted) - 1, emitted[-1]
