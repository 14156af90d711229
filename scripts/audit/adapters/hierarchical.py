"""The code of "Lossless Hierarchical Speculative Decoding" (arXiv 2601.05724): `_speculative_sampling` of its changed copy of
transformers/generation/utils.py, with one draft.

    SPECLAB_AUDIT_FILE=CLONE/transformers/generation/utils.py PYTHON scripts/audit.py audit.adapters.hierarchical:by_hierarchy

PYTHON has numpy and torch. Only this function is taken from the file, so its transformers need not be installed. The other
verifiers of the function are by_block and by_token. Some versions of the file are not valid Python and are refused.
"""

import torch
import torch.nn.functional

from audit.adapters.foreign_file import functions_of_file, path_of_user
from audit.adapters.torch_coins import drawing_from, logits

(sampling,) = functions_of_file(
    path_of_user("transformers/generation/utils.py of a clone of the project"),
    "_speculative_sampling",
    torch=torch,
    F=torch.nn.functional,
)


def _verifier(**mode):
    def verify(p, q, draft, coins):
        with drawing_from(coins):
            tokens = sampling(
                candidate_input_ids=torch.tensor([[0, *draft]]),  # one token of the text before
                candidate_logits=logits(q),
                candidate_length=len(draft),
                new_logits=logits(p),
                is_done_candidate=torch.tensor([False]),
                stop=lambda *_, **__: False,
                **mode,
            )[0]
        emitted = tokens[0].tolist()
        return len(emitted) - 1, emitted[-1]

    return verify


by_token = _verifier()
by_block = _verifier(blockwise=True)
by_hierarchy = _verifier(backward=True, clever=True)
