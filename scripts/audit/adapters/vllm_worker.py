"""The verifier of vLLM's newer worker: rejection_sample() of vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py, with
all kernels that it launches.

    SPECLAB_AUDIT_FILE=.../rejection_sampler_utils.py PYTHON scripts/audit.py audit.adapters.vllm_worker:verify_block
    SPECLAB_AUDIT_FILE=... PYTHON scripts/audit.py audit.adapters.vllm_worker:verify

verify_block is block verification (Sun et al. 2024, arXiv 2403.10444), verify is the token rule (Leviathan et al. 2023).
verify_block_copied and verify_copied are the same without the draft's logits, as vLLM runs them for n-gram drafts: then a drafted
token is accepted as if its q were 1. The file ../sample/gumbel.py of the same version must be there too.

PYTHON has numpy; neither vLLM, PyTorch nor Triton need be installed: triton_stand_in.py runs the kernels. Both files run unchanged,
except for the two functions that make random numbers of a seed, a position and a token:

- tl_rand32, the uniform number of a test. Here it is coins.uniform().
- murmur3_uniform64, the numbers from which the race for the last token makes its noise.

Equal arguments give the same coin, so a program that makes one number twice is audited with this one number. The noise is the one
in double precision (use_fp64), and a block of tokens has two tokens in place of vLLM's 8,192 and 1,024. So a vocabulary of
three tokens has two blocks, and the sums over blocks are audited too. The request is the second of two in vLLM's tables, and all
other entries are garbage.

Not run: greedy decoding, which draws nothing; the modes "synthetic" and "fly", which are not lossless; watermarks.
"""

import itertools
import pathlib
import types

import numpy as np

from audit.adapters.foreign_file import functions_of_file, path_of_user
from audit.adapters.triton_stand_in import Heats, Language, Noise, Pointer

BLOCK = 2  # tokens of a block
SEED, POSITION = 3, 7  # of the request and of the first logits: any numbers
language = Language()


class Stream:
    """The random numbers of one run, each with the address under which the kernel makes it."""

    def __init__(self, coins):
        self.coins, self.uniforms, self.races, self.tokens = coins, {}, {}, set()

    def uniform(self, seed, position, includes_zero):
        address = int(seed), int(position)
        if address not in self.uniforms:
            self.uniforms[address] = self.coins.uniform()
        return self.uniforms[address]

    def noise(self, seed, position, tokens):
        address = int(seed), int(position)
        for token in tokens.tolist():
            if (*address, token) in self.tokens:
                raise ValueError(f"two scores have the noise of the same seed, position and token {(*address, token)}")
            self.tokens.add((*address, token))
        return Noise(self.races.setdefault(address, Heats(self.coins)))


class Tensor:
    """The part of torch.Tensor that rejection_sample() uses. New memory is garbage, as it is in PyTorch."""

    def __init__(self, values, dtype=np.float64):
        self.array = np.array(values, dtype)
        self.shape, self.ndim = self.array.shape, self.array.ndim

    def size(self, axis):
        return self.shape[axis]

    def stride(self, axis):
        return self.array.strides[axis] // self.array.itemsize

    def new_empty(self, *shape, dtype):
        return Tensor(np.full(shape, np.nan if dtype == np.float64 else -1), dtype)


class Program:
    """A function with @triton.jit: kernels call it, and rejection_sample() launches it."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments, **named):
        return self.function(*arguments, **named)

    def __getitem__(self, grid):
        def launch(*arguments, num_warps=None, **constants):
            if "BLOCK_SIZE" in constants:
                constants["BLOCK_SIZE"] = BLOCK
            given = [Pointer(a.array.reshape(-1)) if isinstance(a, Tensor) else a for a in arguments]
            for language.program in itertools.product(*map(range, grid)):
                self.function(*given, **constants)

        return launch


def _load():
    """Returns rejection_sample() of the user's files."""
    names = {
        "tl": language,
        "tldevice": types.SimpleNamespace(log1p=np.log1p),
        "triton": types.SimpleNamespace(
            cdiv=lambda tokens, block: -(-tokens // BLOCK), next_power_of_2=lambda n: 1 << (n - 1).bit_length()
        ),
        "torch": types.SimpleNamespace(float32=np.float64, float64=np.float64, int32=np.int64, int64=np.int64),
    }
    path = pathlib.Path(
        path_of_user("vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py of a clone or wheel of vLLM")
    )
    for file in (path.parent.parent / "sample/gumbel.py", path):
        functions = functions_of_file(file, **names)
        programs = {function.__name__: Program(function) for function in functions}
        programs["tl_rand32"] = lambda *address, **named: stream.uniform(*address, **named)
        programs["murmur3_uniform64"] = lambda *address: stream.noise(*address)
        names |= programs
        for function in functions:
            function.__globals__.update(programs)
    if "rejection_sample" not in programs:
        raise ValueError(f"{path} has no function rejection_sample; the adapter was written for another version")
    return programs["rejection_sample"]


stream = None  # of the run
rejection_sample = _load()


def verify_block(p, q, draft, coins):
    return _verify(p, q, draft, coins, True)


def verify_block_copied(p, q, draft, coins):
    return _verify(p, None, draft, coins, True)


def verify(p, q, draft, coins):
    return _verify(p, q, draft, coins, False)


def verify_copied(p, q, draft, coins):
    return _verify(p, None, draft, coins, False)


def _verify(p, q, draft, coins, block):
    global stream
    stream, gamma = Stream(coins), len(draft)
    rows = range(gamma + 1)
    with np.errstate(all="ignore"):  # the logarithm of 0 and what follows from it
        sampled, count = rejection_sample(
            target_logits=Tensor(np.log(p)),
            draft_logits=None if q is None else Tensor([np.full_like(q, np.nan), np.log(q)]),
            draft_sampled=Tensor([-1, *draft], np.int64),  # the token before each row of p
            cu_num_logits=Tensor([0, gamma + 1], np.int64),
            pos=Tensor([POSITION + row for row in rows], np.int64),
            idx_mapping=Tensor([1], np.int64),
            expanded_idx_mapping=Tensor([1 for _ in rows], np.int64),
            expanded_local_pos=Tensor(rows, np.int64),
            temperature=Tensor([np.nan, 1.0]),
            seed=Tensor([-1, SEED], np.int64),
            num_speculative_steps=gamma,
            use_fp64=True,
            use_block_verification=block,
        )
    emitted = sampled.array[0, : count.array[0]].tolist()
    if emitted[:-1] != list(draft[: len(emitted) - 1]):
        raise ValueError(f"the emitted tokens {emitted} do not begin with the accepted part of the draft {list(draft)}")
    return len(emitted) - 1, emitted[-1]
