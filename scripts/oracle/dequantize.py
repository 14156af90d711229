#!/usr/bin/env python3
"""Writes tests/golden/dequantize/blocks.json: blocks of every tensor type and what the `gguf` package makes of them.

Needs gguf and numpy. The input is random and fixed by the seed; the first blocks have extreme scales: zeros, the
smallest and the largest half, subnormals, infinities and NaN. Every NaN is written as 7fc00000: which one comes out
of inf * 0 is the processor's choice.
"""

import importlib.metadata
import json
import pathlib
import sys

import gguf
import numpy as np

SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
RANDOM_BLOCKS = 6
HALVES = {"Q4_0": 1, "Q4_1": 2, "Q5_0": 1, "Q5_1": 2, "Q8_0": 1}  # at the front of a block


def block_input(name, random):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    rows = []
    extreme = [(scale, None) for scale in SCALES]
    if HALVES[name] == 2:
        extreme += [(None, least) for least in SCALES] + [(0x7BFF, 0xFBFF), (0x0001, 0x0001)]
    for scale, least in extreme + [(None, None)] * RANDOM_BLOCKS:
        row = random.integers(0, 256, size, dtype=np.uint8)
        halves = random.normal(0, 0.05, HALVES[name]).astype(np.float16)
        row[: 2 * HALVES[name]] = np.frombuffer(halves.tobytes(), dtype=np.uint8)
        for at, half in ((0, scale), (2, least)):
            if half is not None:
                row[at : at + 2] = np.frombuffer(np.uint16(half).tobytes(), dtype=np.uint8)
        rows.append(row)
    return np.stack(rows)


def output_hex(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(-1).copy()
    bits[np.isnan(values).reshape(-1)] = 0x7FC00000
    return "".join(f"{int(b):08x}" for b in bits)


def main():
    random = np.random.default_rng(20261121)
    types = {}
    for name in HALVES:
        blocks = block_input(name, random)
        with np.errstate(all="ignore"):
            values = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
        types[name] = {"input": blocks.tobytes().hex(), "output": output_hex(values)}
    words = np.concatenate([np.array(SCALES, np.uint16), random.integers(0, 1 << 16, 246, dtype=np.uint16)])
    for name in ("F16", "BF16"):
        values = (
            words.view(np.float16).astype(np.float32)
            if name == "F16"
            else gguf.dequantize(words.view(np.uint8), gguf.GGMLQuantizationType.BF16)
        )
        types[name] = {"input": words.tobytes().hex(), "output": output_hex(values)}
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/golden/dequantize/blocks.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    made_by = {"gguf": importlib.metadata.version("gguf"), "numpy": np.__version__}
    target.write_text(json.dumps({"made_by": made_by, "types": types}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
