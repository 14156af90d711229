"""The rejection sampler of vLLM: the kernels sample_recovered_tokens_kernel and rejection_random_sample_kernel of
vllm/v1/sample/rejection_sampler.py.

    SPECLAB_AUDIT_FILE=FOLDER/vllm/v1/sample/rejection_sampler.py PYTHON scripts/audit.py audit.adapters.vllm_rejection:verify
    SPECLAB_AUDIT_FILE=... PYTHON scripts/audit.py audit.adapters.vllm_rejection:verify_copied

verify gives the kernels the draft's probabilities. verify_copied gives them none (NO_DRAFT_PROBS), as vLLM does for n-gram
drafts: then a drafted token is accepted with the target's probability.

PYTHON has numpy; neither vLLM nor Triton need be installed: triton_stand_in.py runs the kernels of the file. The kernel draws a token
by a race: it divides the weights by exponential noise and takes the largest quotient. vLLM draws the bonus token outside the
kernels, so here it is drawn from p.

Not run here: rejection_greedy_sample_kernel, which uses no random number. vllm_worker.py runs vLLM's newer sampler.
"""

import numpy as np

from audit.adapters.foreign_file import functions_of_file, path_of_user
from audit.adapters.triton_stand_in import Language, Pointer

language = Language()
recover, reject = functions_of_file(
    path_of_user("vllm/v1/sample/rejection_sampler.py of a clone or wheel of vLLM"),
    "sample_recovered_tokens_kernel",
    "rejection_random_sample_kernel",
    tl=language,
)


def verify(p, q, draft, coins):
    return _verify(p, Pointer(q.ravel()), draft, coins)


def verify_copied(p, q, draft, coins):
    return _verify(p, None, draft, coins)


def _verify(p, draft_probs, draft, coins):
    gamma, vocab = len(draft), p.shape[1]
    noise, uniforms = np.empty(vocab, dtype=object), np.empty(gamma, dtype=object)
    noise[:] = [coins] * vocab  # the stand-in makes a race of them
    uniforms[:] = [coins.uniform() for _ in range(gamma)]
    common = {
        "cu_num_draft_tokens_ptr": Pointer(np.array([gamma])),
        "draft_token_ids_ptr": Pointer(np.array(draft)),
        "draft_probs_ptr": draft_probs,
        "target_probs_ptr": Pointer(p[:gamma].ravel()),
        "vocab_size": vocab,
        "NO_DRAFT_PROBS": draft_probs is None,
    }
    recovered, output = np.full(gamma, -1), np.full(gamma + 1, -1)
    for position in range(gamma):
        language.program = (0, position)
        recover(
            output_token_ids_ptr=Pointer(recovered),
            inv_q_ptr=Pointer(noise),
            BLOCK_SIZE=1 << (vocab - 1).bit_length(),
            USE_FP64_GUMBEL=True,
            **common,
        )
    language.program = (0,)
    reject(
        output_token_ids_ptr=Pointer(output),
        bonus_token_ids_ptr=Pointer(np.array([coins.categorical(p[gamma])])),
        recovered_token_ids_ptr=Pointer(recovered),
        uniform_probs_ptr=Pointer(uniforms),
        is_greedy_ptr=Pointer(np.array([False])),
        max_spec_len=gamma,
        synthetic_conditional_rates_ptr=None,
        SYNTHETIC_MODE=False,
        **common,
    )
    emitted = [int(token) for token in output if token >= 0]  # -1 marks what was not emitted
    return len(emitted) - 1, emitted[-1]
