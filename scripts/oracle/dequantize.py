#!/usr/bin/env python3
"""Writes tests/golden/dequantize/blocks.json: blocks of tensor types, dequantised by the package `gguf` (F16: by numpy).

    python3 scripts/oracle/dequantize.py [FILE] [BLOCKS]

BLOCKS is the number of random blocks of every quantised type. SPECLAB_DEQUANTIZE_GOLDEN=FILE makes the C++ test read
FILE. Needs gguf and numpy. The input is random and fixed by the seed; the first blocks have extreme scales: zeros,
subnormals, the smallest normal and the largest half-precision numbers, infinities and NaN. Every NaN is written as 7fc00000,
because the NaN of inf * 0 depends on the processor. Blocks of the K types have 256 weights. Their output is stored as
the SHA-256 of its little-endian bits; the output of the last block is also stored in full.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import sys

import gguf
import numpy as np

SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
RANDOM_BLOCKS = 6
# Byte positions of the half-precision numbers (scale, then offset) in a block.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "IQ4_NL": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def block_input(name, random, random_blocks):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    places = HALVES[name]
    extreme = [(scale, None) for scale in SCALES]
    if len(places) == 2:
        extreme += [(None, least) for least in SCALES] + [(0x7BFF, 0xFBFF), (0x0001, 0x0001)]
    rows = []
    for halves in extreme + [(None, None)] * random_blocks:
        row = random.integers(0, 256, size, dtype=np.uint8)
        usual = random.normal(0, 0.05, len(places)).astype(np.float16).view(np.uint16)
        for at, given, other in zip(places, halves, usual):
            half = np.uint16(other if given is None else given)
            row[at : at + 2] = np.frombuffer(half.tobytes(), dtype=np.uint8)
        rows.append(row)
    return np.stack(rows)


def output_hex(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(-1).copy()
    bits[np.isnan(values).reshape(-1)] = 0x7FC00000
    return "".join(f"{int(b):08x}" for b in bits)


def main():
    random = np.random.default_rng(20261121)
    types = {}
    random_blocks = int(sys.argv[2]) if len(sys.argv) > 2 else RANDOM_BLOCKS
    for name in HALVES:
        blocks = block_input(name, random, random_blocks)
        with np.errstate(all="ignore"):
            values = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
        types[name] = {"input": blocks.tobytes().hex()}
        if name.endswith("_K"):
            bits = [bytes.fromhex(output_hex(block)) for block in values]
            digests = [hashlib.sha256(np.frombuffer(b, dtype=">u4").astype("<u4").tobytes()) for b in bits]
            types[name]["sha256"] = [digest.hexdigest() for digest in digests]
            types[name]["last_output"] = output_hex(values[-1])
        else:
            types[name]["output"] = output_hex(values)
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
