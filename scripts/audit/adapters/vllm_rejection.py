"""The rejection sampler of vLLM: the kernels sample_recovered_tokens_kernel and rejection_random_sample_kernel of
vllm/v1/sample/rejection_sampler.py.

    SPECLAB_AUDIT_FILE=FOLDER/vllm/v1/sample/rejection_sampler.py PYTHON scripts/audit.py audit.adapters.vllm_rejection:verify
    SPECLAB_AUDIT_FILE=... PYTHON scripts/audit.py audit.adapters.vllm_rejection:verify_copied

verify gives the kernels the draft's probabilities. verify_copied gives them none (NO_DRAFT_PROBS), as vLLM does for n-gram
drafts: then a drafted token is accepted with the target's probability.

PYTHON has numpy; neither vLLM nor Triton need be installed. The kernels are Triton code, which is Python. The class Language of
this file takes the place of triton.language. It is our own stand-in, not Triton's interpreter: it runs the kernels of the file
for one program at a time, with arrays of NumPy in place of memory. The kernel draws a token by a race: it divides the
weights by exponential noise and takes the largest quotient. Here such a race is one coins.categorical(). vLLM draws the
bonus token outside the kernels, so here it is drawn from p.

Not run here: rejection_greedy_sample_kernel, which uses no random number, and the sampler of vllm/v1/worker/gpu with its block
verification, which makes its random numbers inside its kernels.
"""

import numpy as np

from audit.adapters.foreign_file import functions_of_file, path_of_user


class Pointer:
    """An address in a flat array: an offset, or an array of offsets."""

    def __init__(self, memory, offset=0):
        self.memory, self.offset, self.dtype = memory, offset, self
        self.element_ty = memory.dtype

    def __add__(self, offset):
        return Pointer(self.memory, self.offset + offset)


class Race:
    """Weights divided by exponential noise. The largest quotient has index i with probability weights[i] / sum(weights)."""

    def __init__(self, coins, weights):
        self.coins, self.weights = coins, weights

    def __rmul__(self, weights):
        return Race(self.coins, self.weights * weights)

    __array_ufunc__ = None  # so that NumPy leaves array * Race to __rmul__


class Language:
    """The part of triton.language that the kernels use, for one program."""

    constexpr, float32, float64 = object, np.float64, np.float64

    def __init__(self):
        self.program = ()

    def program_id(self, axis):
        return self.program[axis]

    def load(self, pointer, mask=None, other=None):
        if pointer.memory.dtype == object and isinstance(pointer.memory[0], Race):
            return Race(pointer.memory[0].coins, np.where(mask, 1.0, 0.0))
        if mask is None:
            return pointer.memory[pointer.offset]
        offset, mask = np.broadcast_arrays(pointer.offset, mask)
        return np.array([pointer.memory[i] if use else other for i, use in zip(offset, mask)])

    def store(self, pointer, value):
        pointer.memory[pointer.offset] = value

    def max(self, values, axis, return_indices):
        if not values.weights.sum() > 0:
            return 0.0, 0  # every score is 0, and the first one is taken
        return np.inf, values.coins.categorical(values.weights)

    def where(self, mask, values, other):
        return Race(values.coins, np.where(mask, values.weights, 0.0))  # a score of -inf never wins

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)[()]

    def full(self, shape, value, dtype):
        return np.full(shape, value, dtype)[()]

    arange, maximum, minimum = staticmethod(np.arange), staticmethod(np.maximum), staticmethod(np.minimum)


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
    noise[:] = [Race(coins, None)] * vocab
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
