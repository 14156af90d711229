"""SpecLab in Python: measured runs as pandas frames, closed forms of speculative decoding, and comparisons of runs.

- `load(run)` reads a run folder or a committed baseline.
- `theory` holds the closed forms and estimators of the C++ library (`core/theory`).
- `trace(run)` returns what drafters propose at every position of a text. It reads a run that `speclab trace` recorded.
- `load_foreign(files)` reads results of other programs: Spec-Bench, vLLM, ik_llama.cpp, SpecDecode-Bench, CSV.
- `export(run, to, format)` writes a run in other programs' formats; `render(prompts, tokenizer_config, to)` writes prompts in a chat form.
- `anchors` holds published numbers and compares each with the closed forms.
- `predict(...)` computes every closed form whose inputs are known, as a frame.
- `measure_proposer(proposer, ...)` measures the acceptance of a proposer that is written in Python.
- `compare(base, new)` and `simulate(run, device)` run the `speclab` binary.

Importing the package loads neither pandas nor the extension module. Each name is loaded when it is first used.
docs/python.md has an introduction, and python/tutorial.ipynb a worked example.
"""

import importlib
from typing import TYPE_CHECKING

from .errors import Error

if TYPE_CHECKING:
    from . import anchors, theory
    from .binary import Comparison, Simulation, call, compare, simulate
    from .exports import export
    from .foreign import Foreign, load_foreign
    from .metric_units import estimators, units
    from .predicted import predict
    from .proposals import DraftTree
    from .proposers import Proposer, measure_proposer
    from .record import BadRun, NotApplicable
    from .run import Run, load
    from .templates import render
    from .traces import trace

__version__ = "0.1.0"
__all__ = [
    "BadRun",
    "Comparison",
    "DraftTree",
    "Error",
    "Foreign",
    "NotApplicable",
    "Proposer",
    "Run",
    "Simulation",
    "anchors",
    "call",
    "compare",
    "estimators",
    "export",
    "load",
    "load_foreign",
    "measure_proposer",
    "predict",
    "render",
    "simulate",
    "theory",
    "trace",
    "units",
]

_HOME = {
    "BadRun": "record",
    "Comparison": "binary",
    "DraftTree": "proposals",
    "Foreign": "foreign",
    "NotApplicable": "record",
    "Proposer": "proposers",
    "Run": "run",
    "Simulation": "binary",
    "call": "binary",
    "compare": "binary",
    "estimators": "metric_units",
    "export": "exports",
    "load": "run",
    "load_foreign": "foreign",
    "measure_proposer": "proposers",
    "predict": "predicted",
    "render": "templates",
    "simulate": "binary",
    "trace": "traces",
    "units": "metric_units",
}


def __getattr__(name: str) -> object:
    if name in ("anchors", "theory"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'speclab' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
