"""Figures of a run. One module per figure or small group; each has FIGURES, a list of Figure.

To add a figure, write a module with a function that takes a Run and returns a matplotlib figure, or raises NotApplicable if there
is nothing to show. Add a Figure to the module's FIGURES, and the name of the module to MODULES below. Then look at the picture, in
colour and in grey.
"""

import dataclasses
import importlib
from collections.abc import Callable

MODULES = [
    "speedup",
    "gamma_map",
    "acceptance",
    "timing.operations",
    "timing.time_split",
    "draft_length",
    "curves",
    "confidence",
    "timing.timeline",
    "generated_text",
    "timing.waterfall",
    "quality",
    "draft_capability",
    "sampling",
    "lookahead",
    "verification.verifiers",
    "verification.trees",
    "verification.cells",
    "simulated.entropy",
    "simulated.replay",
    "training.by_prompt",
]


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str
    draw: Callable  # Run -> matplotlib figure
    finding: Callable | None = None  # takes the Run; returns a sentence that follows the caption


def ladder_figures():
    """The figures of a config with several targets. Their `draw` takes a Ladder."""
    return importlib.import_module("figures.scale_ladder").FIGURES


def head_figures():
    """The figures of a folder of trained heads. Their `draw` takes a head_curves.Head."""
    return importlib.import_module("figures.training.head_curves").FIGURES


def all_figures():
    return [figure for module in MODULES for figure in importlib.import_module(f"figures.{module}").FIGURES]
