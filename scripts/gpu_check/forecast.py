#!/usr/bin/env python3
"""Predicts the times that gpu_check.sh measures, so that the first measurement can be compared with a forecast.

    forecast.py            writes results/gpu/forecast.json
    forecast.py --check    exit status 1 if the file is not up to date

Nothing here was measured on a GPU. Each constant below is published (its source is named), assumed, or taken from the program.
Equations, for n rows of one sequence after `context` committed tokens:

    floor of a kernel = max(bytes / bandwidth, operations / arithmetic, on-chip bytes / on-chip bandwidth)
    time of a kernel  = floor + ramp + dependent accesses x latency
    forward           = sum of the times of its kernels + launches x gap(form)
    persistent form   = sum of the floors + tasks x (barrier + ramp of a task) + gap

The form says how the kernels of a forward are launched: one by one ("launches"), as a CUDA graph ("graph"), or as one
persistent kernel ("persistent"). The ramp is the time until the first bytes arrive and until the last block ends.
`bytes` are read from memory or written to it: weights in bf16 once, keys and values in bf16, activations in float or
bf16. Activations that each block of a linear layer reads again count as on-chip bytes. Perfect overlap of the three
terms is assumed, so a floor is a lower bound. Launches are assumed not to overlap, as with --kernels serial. The
default overlaps them on sm_90 and should be faster.

The launches of a forward are LAYER_KERNELS and FORWARD_KERNELS. A test compares them with what the program launches on the simulated
GPU (tests/on_device/forecast_test.cpp), so a change of the program must be made here too. Uses the standard library
only.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "results/gpu/forecast.json"

# Kernels of a forward in the form "launches": those of a layer, and the others. The products of a layer are QKV,
# output, gate and up, down. With one row, these products compute the norms themselves. With more rows, each of the two
# norms of a layer is a kernel.
# At up to 16 rows the rotation is a part of the product before it, unless a block of this product has one tile of outputs (rotates()).
# At one row and up to eight splits of the context, the sum of attention is a part of the product after it. launches()
# assumes that a context has no more than eight splits.
LAYER_KERNELS = {
    "one_row": {"linear": 4, "attention_splits": 1},
    "few_rows": {"rms_norm": 2, "linear": 4, "attention_splits": 1, "attention_sum": 1},
    "many_rows": {"rms_norm": 2, "linear": 4, "rope_and_store": 1, "attention_splits": 1, "attention_sum": 1},
}
FEW_ROWS = 16
FORWARD_KERNELS = {"gather": 1, "copy_rows": 1, "rms_norm": 1, "round_rows": 1, "linear": 1}
PROJECTION_KERNELS = {"round_rows": 1, "linear": 1}  # of an embedding with a projection, in a draft
# Tasks of the persistent kernel. Each ends with a barrier. A layer has one more if the rotation is not a part of a product.
PERSISTENT_TASKS = {"layer": 5, "forward": 5}
# A step that the device runs: these kernels come before and after the target's forward.
STEP_KERNELS = {"lay_rows": 1, "standardise": 1, "accept": 1, "settle": 1}

GAPS = {
    # Seconds between the end of a kernel and the start of the next one.
    "launches": (
        2.1e-6,
        "published: Spector et al. 2025, Look Ma, No Bubbles (hazyresearch.stanford.edu), H100, a stream",
    ),
    "graph": (
        1.3e-6,
        "published: Spector et al. 2025, Look Ma, No Bubbles (hazyresearch.stanford.edu), H100, a CUDA graph",
    ),
}
RAMP = (0.6e-6, "assumed: about one latency of memory")
LATENCY = (0.25e-6, "assumed: an access to L2 that waits for the one before it")
TASK_RAMP = (1.2e-6, "assumed: a latency of memory and the last block of a task")
BARRIER = (0.8e-6, "assumed: arrival and release across all multiprocessors")
BLOCK_OUTPUTS = (128, "the program: outputs of a block of a linear layer with eight warps")
SPLIT = (128, "the program: keys of a split of attention (kSplit)")
STANDARDISE_PASSES = (
    3,
    "the program: reads of the logits and one write of the weights, as cuda/accept_sample_compact counts them. The first of two "
    "launches finds the largest logit, the second computes weights and sums",
)
ROW_PIECE = (4096, "the program: entries of a row per block (kRowPiece)")
CUT = (
    {"levels": 3, "dependent": 4, "search": 32, "passes": 16},
    "the program: launches that find four bits each; accesses of a launch that wait for each other (largest logit and state, row, "
    "arrival, results of the other blocks); search: sixteen passes over the collected entries, two accesses each",
)
ACCEPT_STEPS = (
    {"walk": 5, "rejection": 4},
    "the program: accesses of accept that wait for each other. Walk: state, nodes, rows and weights of all nodes, then one "
    "chunk and one group of it for the last token. Rejection: the two rows, the arrival, the sums of the chunks, their memory fence",
)


@dataclasses.dataclass(frozen=True)
class Device:
    """Constants of a GPU in bytes, operations and seconds, with their sources."""

    name: str
    nominal: float  # bytes per second of memory
    dense_bf16: float  # operations per second
    sms: int
    attainable: float  # share of `nominal` that reading reaches
    mma: float  # share of `dense_bf16` that mma.sync reaches
    on_chip: float  # bytes per second from L2
    one_block: float  # bytes per second that one block reads
    to_host: float  # bytes per second of a download to pageable memory of the host
    sources: dict

    @property
    def bandwidth(self):
        return self.nominal * self.attainable

    @property
    def arithmetic(self):
        return self.dense_bf16 * self.mma


_ASSUMED = {
    "attainable": "assumed",
    "on_chip": "assumed from H100 PCIe: Chips and Cheese 2023, H100: Funny L2 and Tons of Bandwidth",
    "one_block": "assumed: 64 bytes a clock",
    "to_host": "assumed: one thread of the host copies from the pinned halves",
}
_HOPPER_MMA = "published: Luo et al. 2024, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (arXiv 2402.13499), about 62 %"
DEVICES = {
    device.name: device
    for device in (
        Device(
            "H200", 4.8e12, 989e12, 132, 0.90, 0.62, 5.5e12, 1.1e11, 1.0e10,
            {"nominal, dense_bf16": "published: NVIDIA H200 data sheet", "mma": _HOPPER_MMA, **_ASSUMED},
        ),
        Device(
            "H100", 3.35e12, 989e12, 132, 0.90, 0.62, 5.5e12, 1.1e11, 1.0e10,
            {"nominal, dense_bf16": "published: NVIDIA H100 data sheet (SXM)", "mma": _HOPPER_MMA, **_ASSUMED},
        ),
        Device(
            "A100", 2.039e12, 312e12, 108, 0.90, 0.90, 4.0e12, 0.9e11, 1.0e10,
            {"nominal, dense_bf16": "published: NVIDIA A100 80GB data sheet (SXM)", "mma": "assumed", **_ASSUMED},
        ),
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder with gated feed-forward layers and one head of `vocab` rows."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    embedding: int = 0  # width of the embedding if a projection follows it; 0: none does

    @property
    def query(self):
        return self.heads * self.head_dim

    @property
    def kv(self):
        return self.kv_heads * self.head_dim

    def products(self):
        """The linear layers of a layer: {name: (outputs, inputs)}"""
        return {
            "QKV": (self.query + 2 * self.kv, self.hidden),
            "output": (self.hidden, self.query),
            "gate and up": (2 * self.ffn, self.hidden),
            "down": (self.hidden, self.ffn),
        }

    @property
    def weight_bytes(self):
        layer = sum(outputs * inputs for outputs, inputs in self.products().values())
        return 2 * (self.layers * layer + self.vocab * self.hidden + self.embedding * self.hidden)


# The targets of gpu_check.sh and the shipped draft. A test compares the targets with gpu_check.sh and the draft with
# models/draft.
SHAPES = {
    "135m": Shape("SmolLM2-135M", 576, 30, 9, 3, 64, 1536, 49152),
    "1b": Shape("1B shape", 2048, 30, 32, 8, 64, 4480, 49152),
    "8b": Shape("8B shape", 4096, 32, 32, 8, 128, 14336, 128256),
}
DRAFT = Shape("shipped draft", 256, 3, 2, 2, 128, 768, 49152, embedding=576)
CONTEXT = 128  # committed tokens before the forwards of the goals
GOAL_ROWS = {"135m": (16,), "1b": (16,), "8b": (16, 64, 128)}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a forward: how often it is launched, and what one launch moves and computes."""

    name: str
    launches: int
    bytes: float
    operations: float = 0.0
    on_chip: float = 0.0
    blocks: int = 0  # 0: enough to fill the device
    dependent: int = 0  # accesses that wait for each other, besides those of the ramp

    def floor(self, device):
        bandwidth = device.bandwidth if self.blocks == 0 else min(device.bandwidth, self.blocks * device.one_block)
        return max(self.bytes / bandwidth, self.operations / device.arithmetic, self.on_chip / device.on_chip)

    def time(self, device):
        return self.floor(device) + RAMP[0] + self.dependent * LATENCY[0]


def linear(name, launches, outputs, inputs, n, accumulate=False):
    out = n * outputs * 4 * (2 if accumulate else 1)
    again = n * inputs * 2 * math.ceil(outputs / BLOCK_OUTPUTS[0])
    return Kernel(name, launches, 2 * outputs * inputs + n * inputs * 2 + out, 2.0 * n * outputs * inputs, again + out)


def slices_of(outputs, inputs):
    """Number of slices into which a linear layer divides its sum over the inputs, as in
    core/backend/cuda/kernels/linear/linear.h."""
    slices = 1
    while slices < 8 and math.ceil(outputs / 16) * slices < 1024 and math.ceil(inputs / 32) >= 8 * slices:
        slices *= 2
    return slices


def rotates(shape):
    """Whether the product of queries, keys and values also applies RoPE: a block of it needs two tiles of outputs."""
    return shape.head_dim % 32 == 0 and slices_of(*shape.products()["QKV"]) <= 4


def layer_kernels(shape, n, context):
    """The kernels of all layers of a forward, in their order in a layer."""
    layers, hidden, query, kv = shape.layers, shape.hidden, shape.query, shape.kv
    splits = math.ceil((context + n) / SPLIT[0])
    partials = n * shape.heads * splits * (shape.head_dim + 2) * 4
    products = shape.products()
    norm = Kernel("norm", 2 * layers, n * hidden * (4 + 2))
    found = [] if n == 1 else [norm]
    found += [
        linear("QKV", layers, *products["QKV"], n),
        Kernel("rotation", layers, n * (query + 2 * kv) * 4 * 2 + n * 2 * kv * 2),
        Kernel(
            "attention splits", layers, (context + n) * 2 * kv * 2 + n * query * 4 + partials,
            4.0 * n * (context + n) * query,
        ),
        Kernel("attention sum", layers, partials + n * query * 2),
        linear("output", layers, *products["output"], n, accumulate=True),
        linear("gate and up", layers, *products["gate and up"], n),
        linear("down", layers, *products["down"], n, accumulate=True),
    ]  # fmt: skip
    fused = set()
    if n <= FEW_ROWS and rotates(shape):
        fused.add("rotation")
    if n == 1:
        fused.add("attention sum")
    return [kernel for kernel in found if kernel.name not in fused]


def other_kernels(shape, n):
    """The kernels of a forward outside of its layers."""
    hidden, embedding = shape.hidden, shape.embedding
    projection = [
        Kernel("round embeddings", 1, n * embedding * (4 + 2)),
        linear("projection", 1, hidden, embedding, n),
    ]
    return [
        Kernel("gather", 1, n * (embedding or hidden) * (2 + 4)),
        *(projection if embedding else []),
        Kernel("copy rows", 1, n * hidden * 8),
        Kernel("final norm", 1, n * hidden * 8),
        Kernel("round rows", 1, n * hidden * (4 + 2)),
        linear("head", 1, shape.vocab, hidden, n),
    ]


def law_kernels(vocab, n, greedy):
    """The kernels that turn the logits of n rows into laws (probabilities). At temperature 0 the largest logit is
    enough."""
    largest = Kernel("largest logits", 1, n * vocab * 4)
    weights = Kernel("standardise", 1, (STANDARDISE_PASSES[0] - 1) * n * vocab * 4)
    return [largest] if greedy else [largest, weights]


def cut_kernels(vocab, n):
    """What top-k or top-p adds to the laws of n rows: three launches find the 12-bit code of the smallest entry that is kept, and
    one launch searches among the entries with this code."""
    step = Kernel("cut level", CUT[0]["levels"], n * vocab * 4, dependent=CUT[0]["dependent"])
    search = Kernel("cut search", 1, n * vocab * 4, dependent=CUT[0]["dependent"] + CUT[0]["search"])
    return [step, search]


def cut(device, vocab, n, form="launches"):
    """Seconds that top-k or top-p adds. several_blocks: if several blocks work on each row. one_block_at_least: a lower
    bound of the seconds if one block works on each row; it makes 16 passes over the row."""
    several = sum(kernel.launches * (kernel.time(device) + GAPS[form][0]) for kernel in cut_kernels(vocab, n))
    return {"several_blocks": several, "one_block_at_least": CUT[0]["passes"] * vocab * 4 / device.one_block}


def accept_kernel(vocab, greedy):
    """The kernel that accepts or rejects the drafted tokens. To reject a token that was drawn from a law, it reads two
    whole rows. At temperature 0 no token is drawn, so it reads none."""
    steps = ACCEPT_STEPS[0]
    if greedy:
        return Kernel("accept", 1, 0, blocks=1, dependent=steps["walk"])
    return Kernel(
        "accept", 1, 2 * vocab * 4, blocks=math.ceil(vocab / ROW_PIECE[0]), dependent=steps["walk"] + steps["rejection"]
    )


def step_kernels(vocab, n, layers, kv, moved, greedy=False):
    """The kernels after the target's forward in a step. They compute the laws of the rows, accept or reject the draft,
    and move the accepted rows of the KV cache."""
    return [
        *law_kernels(vocab, n, greedy),
        accept_kernel(vocab, greedy),
        Kernel("move", 1, 2 * layers * 2 * kv * 2 * moved),
    ]


def forward_kernels(shape, n, context):
    return layer_kernels(shape, n, context) + other_kernels(shape, n)


def launches(shape, n):
    """Number of launches of a forward of n rows in the form "launches"."""
    per_layer = sum(LAYER_KERNELS["one_row" if n == 1 else "few_rows" if n <= FEW_ROWS else "many_rows"].values())
    if n <= FEW_ROWS and not rotates(shape):
        per_layer += 1
    return (
        shape.layers * per_layer
        + sum(FORWARD_KERNELS.values())
        + (sum(PROJECTION_KERNELS.values()) if shape.embedding else 0)
    )


def tasks(shape):
    projection = sum(PROJECTION_KERNELS.values()) if shape.embedding else 0
    per_layer = PERSISTENT_TASKS["layer"] + (0 if rotates(shape) else 1)
    return shape.layers * per_layer + PERSISTENT_TASKS["forward"] + projection


def forward(device, shape, n, context, form="launches", launched=None):
    """Seconds of a forward without the download of its logits. `launched`: the number of launches in a record; without
    it, launches() gives the number."""
    kernels = forward_kernels(shape, n, context)
    if form == "persistent":
        floors = sum(kernel.launches * kernel.floor(device) for kernel in kernels)
        return floors + tasks(shape) * (BARRIER[0] + TASK_RAMP[0]) + GAPS["launches"][0]
    count = launches(shape, n) if launched is None else launched
    floors = sum(kernel.launches * kernel.floor(device) for kernel in kernels)
    return floors + count * (RAMP[0] + GAPS[form][0])


def after_forward(device, kernels, form="launches"):
    return sum(kernel.time(device) for kernel in kernels) + len(kernels) * GAPS[form][0]


def one_launch(device, kernel, form="launches"):
    """Seconds from one launch to the next, while the same kernel is launched again and again."""
    return kernel.time(device) + GAPS[form][0]


def step(device, shape, context, queued):
    """Seconds of a greedy step that the device runs by itself; `queued` is the option device_graph."""
    form = "launches" if queued == "off" else "graph"
    others = [
        Kernel("lay rows", 1, 0),
        *law_kernels(shape.vocab, 1, greedy=True),
        accept_kernel(shape.vocab, greedy=True),
        Kernel("settle", 1, 0),
    ]
    return forward(device, shape, 1, context, form) + after_forward(device, others, form)


def download(device, shape, n):
    """Seconds for n rows of logits to reach the host. The device fills the halves of a pinned buffer in turn, and
    the host copies them on. Only the host's copies count; the device is assumed to fill the other half meanwhile."""
    return n * shape.vocab * 4 / device.to_host


def share(device, shape, form):
    """Share of the read bandwidth that a forward of one row reaches."""
    read = shape.weight_bytes + CONTEXT * 2 * shape.kv * 2 * shape.layers
    return read / forward(device, shape, 1, CONTEXT, form) / device.bandwidth


def ratio(device, shape, n, form="launches"):
    return forward(device, shape, n, CONTEXT, form) / forward(device, shape, 1, CONTEXT, form)


def speedup_share(device, shape, gamma=4):
    """Speedup with steps that the device runs, divided by tau / (1 + gamma c). It is below 1, because verifying more
    rows and the rest of a step take time."""
    one, draft = forward(device, shape, 1, CONTEXT), forward(device, DRAFT, 1, CONTEXT)
    rest = after_forward(device, [*law_kernels(shape.vocab, gamma + 1, True), accept_kernel(shape.vocab, True)])
    return (one + gamma * draft) / (forward(device, shape, gamma + 1, CONTEXT) + gamma * draft + rest)


# The goals of gpu_page.py by their texts: seconds, microseconds, ratios or shares, in the unit in which gpu_page.py reads them.
GOALS = {
    "8B shape, n = 1, share of read bandwidth": lambda d: share(d, SHAPES["8b"], "launches"),
    "1B shape, n = 1, share of read bandwidth": lambda d: share(d, SHAPES["1b"], "launches"),
    "1B shape, n = 1, persistent kernel, share of read bandwidth": lambda d: share(d, SHAPES["1b"], "persistent"),
    "135M, n = 1": lambda d: forward(d, SHAPES["135m"], 1, CONTEXT),
    "135M, n = 1, persistent kernel": lambda d: forward(d, SHAPES["135m"], 1, CONTEXT, "persistent"),
    "8B shape, t(16)/t(1)": lambda d: ratio(d, SHAPES["8b"], 16),
    "8B shape, t(64)/t(1)": lambda d: ratio(d, SHAPES["8b"], 64),
    "8B shape, t(128)/t(1)": lambda d: ratio(d, SHAPES["8b"], 128),
    # The benchmark gives microseconds. It moves 15 of 32 rows of a cache with 32 layers, each with 8 heads of size 128.
    "accept + sample + compact, vocabulary 128k, n = 32": lambda d: (
        1e6 * after_forward(d, step_kernels(128256, 32, 32, 8 * 128, 15))
    ),
    "draft step, model ≤ 40 MB": lambda d: 1e6 * forward(d, DRAFT, 1, CONTEXT),
    "draft step, model ≤ 40 MB, persistent kernel": lambda d: 1e6 * forward(d, DRAFT, 1, CONTEXT, "persistent"),
    "speedup on the 8B shape, shipped draft, greedy, over tau / (1 + gamma c)": lambda d: speedup_share(
        d, SHAPES["8b"]
    ),
}


def kernel_rows(shape, n, context=CONTEXT):
    """The kernels of a forward and of the rest of a step with their floors and times on each device."""
    moved = max(0, n // 2 - 1)
    kernels = forward_kernels(shape, n, context) + step_kernels(shape.vocab, n, shape.layers, shape.kv, moved)
    return [
        {
            "kernel": kernel.name,
            "launches": kernel.launches,
            "bytes": kernel.bytes,
            "operations": kernel.operations,
            "floor_us": {d.name: round(1e6 * kernel.floor(d), 3) for d in DEVICES.values()},
            "predicted_us": {d.name: round(1e6 * kernel.time(d), 3) for d in DEVICES.values()},
        }
        for kernel in kernels
    ]


def forecast():
    """Everything as one object for results/gpu/forecast.json."""
    constants = {
        "gap_seconds": {form: {"value": value, "source": source} for form, (value, source) in GAPS.items()},
        **{
            name: {"value": value, "source": source}
            for name, (value, source) in {
                "ramp_seconds": RAMP,
                "latency_seconds": LATENCY,
                "task_ramp_seconds": TASK_RAMP,
                "barrier_seconds": BARRIER,
                "block_outputs": BLOCK_OUTPUTS,
                "split": SPLIT,
                "standardise_passes": STANDARDISE_PASSES,
                "row_piece": ROW_PIECE,
                "accept_steps": ACCEPT_STEPS,
                "cut": CUT,
            }.items()
        },
    }
    forwards = []
    for key, shape in {**SHAPES, "draft": DRAFT}.items():
        for n in (1, *GOAL_ROWS.get(key, ())):
            for form in ("launches", "graph", *(["persistent"] if n == 1 else [])):
                times = {d.name: forward(d, shape, n, CONTEXT, form) for d in DEVICES.values()}
                forwards.append(
                    {
                        "shape": key,
                        "rows": n,
                        "form": form,
                        "launches": 1 if form == "persistent" else launches(shape, n),
                        "predicted_ms": {name: round(1e3 * time, 4) for name, time in times.items()},
                    }
                )
    return {
        "what": "predicted, not measured: scripts/gpu_check/forecast.py",
        "schema_version": 1,
        "context": CONTEXT,
        "devices": {name: dataclasses.asdict(device) for name, device in DEVICES.items()},
        "constants": constants,
        "shapes": {
            key: {**dataclasses.asdict(shape), "weight_bytes": shape.weight_bytes}
            for key, shape in {**SHAPES, "draft": DRAFT}.items()
        },
        "launches": {
            "layer": LAYER_KERNELS,
            "forward": FORWARD_KERNELS,
            "projection": PROJECTION_KERNELS,
            "step": STEP_KERNELS,
            "persistent_tasks": PERSISTENT_TASKS,
        },
        "forwards": forwards,
        "download_ms": [
            {
                "shape": key,
                "rows": n,
                "predicted_ms": {d.name: round(1e3 * download(d, SHAPES[key], n), 4) for d in DEVICES.values()},
            }
            for key in SHAPES
            for n in (1, *GOAL_ROWS[key])
        ],
        "cut_us": [
            {
                "vocab": vocab,
                "rows": n,
                "device": d.name,
                **{form: round(1e6 * time, 2) for form, time in cut(d, vocab, n).items()},
            }
            for vocab in sorted({shape.vocab for shape in SHAPES.values()})
            for n in (1, 32)
            for d in DEVICES.values()
        ],
        "kernels": {key: {str(n): kernel_rows(SHAPES[key], n) for n in (1, 16)} for key in SHAPES},
        "goals": {name: {d.name: round(value(d), 5) for d in DEVICES.values()} for name, value in GOALS.items()},
    }


def text():
    return json.dumps(forecast(), indent=1, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return int(not FILE.exists() or FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
