#!/usr/bin/env python3
"""Fails when an include points against the layers of the project (an arrow to the right).

Order: base < measure < backend < model < decoding < theory < strategies < experiments.
Strategies do not include each other and see no file of measure, backend/cpu, backend/cuda or JSON.
Status goes through print_status() of core/base/standard_streams.h: other ways to stderr throw or end the program when it cannot be written.
"""

import pathlib
import re
import sys

ORDER = {
    "core/base": 0,
    "core/measure": 1,
    "core/backend": 2,
    "core/model": 3,
    "core/decoding": 4,
    "core/theory": 5,
    "strategies": 6,
    "experiments": 7,
}
STDERR = re.compile(r"\((?:[^;\n]*\W)?stderr\b|std::cerr\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def layer(path):
    return next((name for name in ORDER if path.startswith(name + "/")), None)


def problems(root):
    for file in sorted(p for top in ("core", "strategies", "experiments") for p in (root / top).rglob("*")):
        if file.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = file.relative_to(root).as_posix()
        own = layer(name)
        text = file.read_text(encoding="utf-8")
        if any(STDERR.search(line.split("//")[0]) for line in text.splitlines()):
            yield f"{name} writes to stderr: print_status() does, and never throws"
        for target in INCLUDE.findall(text):
            other = layer(target)
            if other and own and ORDER[other] > ORDER[own]:
                yield f"{name} includes {target}: {own} comes before {other}"
            if other and own and ORDER[other] == ORDER[own] and own != other:
                yield f"{name} includes {target}: {own} and {other} are side by side"
            if own == "strategies" and (
                other == "strategies" or target.startswith(("core/backend", "nlohmann", "cuda", "chrono", "fstream"))
            ):
                yield f"{name} includes {target}: a strategy sees no other strategy, backend, clock, file or JSON"
            if ("cuda_runtime" in target or target.endswith(".cuh")) and not name.startswith("core/backend/cuda/"):
                yield f"{name} includes {target}: CUDA stays under core/backend/cuda"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
