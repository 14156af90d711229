"""A changed copy of the function `_speculative_sampling` of Hugging Face transformers, in a file of yours.

    SPECLAB_AUDIT_FILE=FILE SPECLAB_AUDIT_ARGUMENTS='{"NAME": VALUE, ...}' PYTHON scripts/audit.py audit.adapters.transformers_fork:verify

Research code often publishes its verifier as such a copy, with more arguments that choose the variant.
SPECLAB_AUDIT_ARGUMENTS gives them as a JSON object; the default is {}. Only this function of the file runs, so
transformers need not be installed. PYTHON has numpy and torch.

The draft never ends the text: is_done_candidate is false, and a function `stop` that is asked for returns False.
"""

import inspect
import json
import os

import torch

from audit.adapters.foreign_file import functions_of_file, path_of_user
from audit.adapters.torch_coins import drawing_from, logits

NAME = "_speculative_sampling"
(function,) = functions_of_file(
    path_of_user(f"a file with a function {NAME}"), NAME, torch=torch, nn=torch.nn, F=torch.nn.functional
)
chosen = json.loads(os.environ.get("SPECLAB_AUDIT_ARGUMENTS", "{}"))
accepted_names = inspect.signature(function).parameters
unknown = sorted(set(chosen) - set(accepted_names))
if unknown:
    raise ValueError(
        f"SPECLAB_AUDIT_ARGUMENTS: {NAME} has no argument {unknown[0]}; it has {', '.join(accepted_names)}"
    )


def verify(p, q, draft, coins):
    offered = {
        "candidate_input_ids": torch.tensor([list(draft)]),
        "candidate_logits": logits(q),
        "candidate_length": len(draft),
        "new_logits": logits(p),
        "is_done_candidate": torch.tensor([False]),
        "stop": lambda *_, **__: False,
    }
    arguments = {name: value for name, value in offered.items() if name in accepted_names} | chosen
    with drawing_from(coins):
        tokens, accepted = function(**arguments)[:2]
    emitted, accepted = tokens[0].tolist(), int(accepted)
    if emitted[:accepted] != list(draft[:accepted]):
        raise ValueError(
            f"{accepted} tokens of the draft {list(draft)} are said to be accepted, but {emitted} was emitted"
        )
    if len(emitted) != accepted + 1:
        raise ValueError(f"{len(emitted)} tokens were emitted with {accepted} accepted ones; expected one more")
    return accepted, emitted[-1]
