"""SpecLab in Python: measured runs as pandas frames, closed forms of speculative decoding, and comparisons of runs.

- `load(run)` reads a run folder or a committed baseline.
- `theory` holds the closed forms and estimators of the C++ library (`core/theory`).
- `predict(...)` computes every closed form whose inputs are known, as a frame.
- `compare(base, new)` and `simulate(run, device)` run the `speclab` binary.

Importing the package reads neither pandas nor the extension module. Each name is loaded when it is first used.
docs/python.md has an introduction, and python/tutorial.ipynb a worked example.
"""

import importlib
from typing import TYPE_CHECKING

from .errors import Error

if TYPE_CHECKING:
    from . import theory
    from .binary import Comparison, Simulation, call, compare, simulate
    from .metric_units import units
    from .predicted import predict
    from .record import BadRun, NotApplicable
    from .run import Run, load

__version__ = "0.1.0"
__all__ = [
    "BadRun",
    "Comparison",
    "Error",
    "NotApplicable",
    "Run",
    "Simulation",
    "call",
    "compare",
    "load",
    "predict",
    "simulate",
    "theory",
    "units",
]

_HOME = {
    "BadRun": "record",
    "Comparison": "binary",
    "NotApplicable": "record",
    "Run": "run",
    "Simulation": "binary",
    "call": "binary",
    "compare": "binary",
    "load": "run",
    "predict": "predicted",
    "simulate": "binary",
    "units": "metric_units",
}


def __getattr__(name: str) -> object:
    if name == "theory":
        return importlib.import_module(".theory", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'speclab' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
