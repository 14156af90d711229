#!/usr/bin/env python3
"""Fails when the layout of the sources breaks a rule. Prints one line for each breach.

    check_layers.py [ROOT]

Layers: base < measure < backend < model < decoding < theory < simulate < strategies < experiments. A file includes only files of
its own layer and of layers further left. Strategies do not include each other. They include no header of backend, measure,
JSON or CUDA, and neither <chrono> nor <fstream>.
Backends: files of core, strategies and experiments outside core/backend include no header of core/backend/cuda or
core/backend/cpu, and do not compare the name of a backend. They ask the backend for the property that they need. The folders
core/backend/cuda and core/backend/cpu include nothing of each other. Only files of core/backend/cuda include
cuda_runtime or a header *.cuh.
In core, strategies and experiments, output to stderr is written by print_status() of core/base/standard_streams.h,
because other ways of writing to stderr throw or end the program when stderr cannot be written.
Sizes: a folder in core, experiments, scripts or tests holds at most 20 modules; files with the same stem are one
module. A C++ or CUDA file has at most 600 lines (generated *_tables.cpp may be longer).
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
    "core/simulate": 6,
    "strategies": 7,
    "experiments": 8,
}
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
MODULES = SOURCES | {".py", ".sh"}
LIMITED = ("core", "experiments", "scripts", "tests")
MOST_MODULES, MOST_LINES = 20, 600

STDERR = re.compile(r"\((?:[^;\n]*\W)?stderr\b|std::cerr\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
BACKEND = r'"(?:cpu|cuda|host-simt)\b[^"\n]*"'
COMPARED = re.compile(
    rf"[!=]=\s*{BACKEND}|{BACKEND}\s*[!=]=|(?:starts_with|compare)\({BACKEND}\)"
    r"|backend\w*(?:\(\))?(?:\.|->)name\(\)\s*[!=]=|[!=]=\s*[\w.>-]*backend\w*(?:\(\))?(?:\.|->)name\(\)"
)


def layer(path):
    return next((name for name in ORDER if path.startswith(name + "/")), None)


def sources(root, folders):
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCES:
                yield file, file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


def wrong_includes(name, text):
    own = layer(name)
    for target in INCLUDE.findall(text):
        other = layer(target)
        if other and own and ORDER[other] > ORDER[own]:
            yield f"{name} includes {target}: {own} is a lower layer than {other}"
        if other and own and ORDER[other] == ORDER[own] and own != other:
            yield f"{name} includes {target}: {own} and {other} are on one layer and may not include each other"
        if own == "strategies" and (
            other == "strategies"
            or target.startswith(("core/backend", "core/measure", "nlohmann", "cuda", "chrono", "fstream"))
        ):
            yield f"{name} includes {target}: a strategy may not use another strategy, a backend, a clock, files or JSON"
        if ("cuda_runtime" in target or target.endswith(".cuh")) and not name.startswith("core/backend/cuda/"):
            yield f"{name} includes {target}: CUDA stays under core/backend/cuda"
        inner = next((f for f in ("core/backend/cuda/", "core/backend/cpu/") if target.startswith(f)), None)
        if inner and own != "core/backend":
            yield f"{name} includes {target}: code outside core/backend may include only the headers directly in core/backend"
        if inner and name.startswith(("core/backend/cuda/", "core/backend/cpu/")) and not name.startswith(inner):
            yield f"{name} includes {target}: the two backends may not include each other"


def wrong_lines(name, text):
    for line in text.splitlines():
        code = line.split("//")[0]
        if STDERR.search(code):
            yield f"{name} writes to stderr. Use print_status(), which never throws"
        if layer(name) != "core/backend" and COMPARED.search(code):
            yield f"{name} compares the name of a backend. Ask the backend for the property instead: {line.strip()}"


def modules(folder):
    """The modules of a folder. Files with the same stem are one."""
    return {p.stem for p in folder.glob("*") if p.is_file() and p.suffix in MODULES}


def too_large(root):
    for _, name, text in sources(root, (*LIMITED, "strategies")):
        lines = text.count("\n")
        if lines > MOST_LINES and not name.endswith("_tables.cpp"):
            yield f"{name} has {lines} lines, at most {MOST_LINES} are allowed. Split it"
    for top in LIMITED:
        for folder in [root / top, *(p for p in sorted((root / top).rglob("*")) if p.is_dir())]:
            count = len(modules(folder))
            if count > MOST_MODULES:
                yield f"{folder.relative_to(root).as_posix()} holds {count} modules, at most {MOST_MODULES} are allowed in a folder"


def problems(root):
    for _, name, text in sources(root, ("core", "strategies", "experiments")):
        yield from wrong_lines(name, text)
        yield from wrong_includes(name, text)
    yield from too_large(root)


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
